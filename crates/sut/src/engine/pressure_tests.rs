//! Too little cache, clients in a hurry, and clients that vanish.

use super::tests::{LIMITS, World, end_of, finished, greedy, world};
use super::*;
use crate::request::Params;

fn kv_free(world: &World) -> usize {
    world.engine.backend.kv_free_tokens()
}

/// Turns until nobody runs or waits.
fn run_to_the_end(world: &mut World) {
    let idle = (0..10_000).find(|_| world.engine.turn(clock::now()) == Turn::Idle(None));
    assert!(idle.is_some(), "the engine never came to rest");
    assert!(world.engine.running.is_empty() && world.engine.preempted.is_empty());
    assert_eq!(kv_free(world), LIMITS.kv_tokens);
}

#[test]
fn the_first_that_does_not_fit_the_cache_holds_those_behind_it() {
    let mut world = world();
    let (mut big, _open) = world.ask(&[1; 160], 2);
    let (mut bigger, _open) = world.ask(&[2; 208], 1);
    let (mut small, _open) = world.ask(&[3], 2);
    world.engine.turn(clock::now());
    assert_eq!(world.engine.running.len(), 1);
    assert_eq!(world.admission.waiting(), 2);
    world.run();
    for (answer, n) in [(&mut big, 2), (&mut bigger, 1), (&mut small, 2)] {
        assert_eq!(finished(answer).n_tokens, n);
    }
    assert_eq!(world.metrics.cache.preemptions.get(), 0);
}

#[test]
fn when_the_cache_runs_out_the_youngest_is_computed_again_and_no_token_is_lost() {
    let mut world = world();
    // Each takes 7 of the 16 blocks in the end, all start with one.
    let mut answers: Vec<_> = (0..4).map(|_| world.ask(&[1], 100)).collect();
    run_to_the_end(&mut world);
    for (answer, _open) in &mut answers {
        let expected = format!("{:?} 100 Length", "x".repeat(100));
        assert_eq!(end_of(answer), expected);
    }
    let metrics = &world.metrics;
    assert!(metrics.cache.preemptions.get() >= 2);
    assert_eq!(metrics.cache.requests_preempted.get(), 0);
    assert_eq!(metrics.generation_tokens.get(), 400);
    // A sequence starts, and has a first token, once.
    assert_eq!(metrics.ttft_seconds.get_sample_count(), 4);
    assert_eq!(metrics.queue_seconds.get_sample_count(), 4);
    assert_eq!(metrics.itl_seconds.get_sample_count(), 396);
    // What was drawn before is fed again.
    let fed = world.fed.lock().expect("not poisoned").len();
    assert!(fed > 400, "{fed} fed");
}

#[test]
fn the_oldest_ends_first_however_little_cache_there_is() {
    let mut world = world();
    let mut answers: Vec<_> = (0..3).map(|_| world.ask(&[1; 8], 240)).collect();
    let mut ends = Vec::new();
    for _ in 0..2000 {
        let before = world.metrics.success_length.get();
        world.engine.turn(clock::now());
        if before != world.metrics.success_length.get() {
            ends.push(world.engine.running.len() + world.engine.preempted.len());
        }
    }
    assert_eq!(ends, [2, 1, 0]);
    for (answer, _open) in &mut answers {
        assert_eq!(finished(answer).n_tokens, 240);
    }
    assert_eq!(kv_free(&world), LIMITS.kv_tokens);
}

fn within(seconds: u64) -> Params {
    Params {
        deadline: Some(Duration::from_secs(seconds)),
        ..greedy()
    }
}

#[test]
fn a_sequence_that_runs_or_waits_is_answered_at_its_deadline() {
    let mut world = world();
    let mut patient: Vec<_> = (0..3).map(|_| world.ask(&[1], 50)).collect();
    let (mut running, _open) = world.ask_with(&[1], 50, within(20));
    let (mut waiting, _open) = world.ask_with(&[1], 2, within(10));
    let start = clock::now();
    world.engine.turn(start);
    assert_eq!(world.admission.waiting(), 1);
    world.engine.turn(start + Duration::from_secs(11));
    assert_eq!(finished(&mut waiting).finish, Some(Finish::Expired));
    assert_eq!(world.admission.waiting(), 0);
    assert_eq!(world.metrics.expired.get(), 1);
    world.engine.turn(start + Duration::from_secs(21));
    assert_eq!(finished(&mut running).finish, Some(Finish::Expired));
    assert_eq!(world.metrics.expired.get(), 2);
    run_to_the_end(&mut world);
    for (answer, _open) in &mut patient {
        assert_eq!(finished(answer).n_tokens, 50);
    }
}

#[test]
fn a_sequence_that_gave_its_seat_up_is_answered_at_its_deadline_too() {
    let mut world = world();
    let _patient: Vec<_> = (0..3).map(|_| world.ask(&[1], 80)).collect();
    let (mut youngest, _open) = world.ask_with(&[1], 200, within(1000));
    let start = clock::now();
    for _ in 0..70 {
        world.engine.turn(start);
    }
    assert_eq!(world.engine.preempted.len(), 1);
    world.engine.turn(start + Duration::from_secs(1001));
    assert_eq!(finished(&mut youngest).finish, Some(Finish::Expired));
    assert_eq!(world.engine.preempted.len(), 0);
    assert_eq!(world.metrics.expired.get(), 1);
    run_to_the_end(&mut world);
}

#[test]
fn a_priority_counts_as_time_waited() {
    let mut world = world();
    let priority = |priority| Params {
        priority,
        ..greedy()
    };
    let mut later = world.ask_with(&[1; 200], 1, priority(1));
    let mut plain = world.ask_with(&[2; 200], 1, priority(0));
    let mut first = world.ask_with(&[3; 200], 1, priority(-1));
    run_to_the_end(&mut world);
    let fed = world.fed.lock().expect("not poisoned").clone();
    let mut order: Vec<u32> = fed;
    order.dedup();
    assert_eq!(order, [3, 2, 1]);
    for (answer, _open) in [&mut later, &mut plain, &mut first] {
        assert_eq!(finished(answer).n_tokens, 1);
    }
}

#[test]
fn two_hundred_clients_vanish_at_random_points_and_every_block_comes_back() {
    let mut world = world();
    // From a small generator; the seed is the 1.
    let mut x: u32 = 1;
    let mut draw = |below: usize| {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (x >> 8) as usize % below
    };
    let mut clients = Vec::new();
    let mut stages = [0; 3];
    for n in 0..200 {
        let prompt = vec![1; 1 + draw(40)];
        clients.push(world.ask(&prompt, 1 + draw(200)));
        for _ in 0..draw(20) {
            world.engine.turn(clock::now());
        }
        if n >= 10 {
            clients.swap_remove(draw(clients.len()));
        }
        stages[0] += usize::from(world.admission.waiting() > 0);
        stages[1] += usize::from(world.engine.running.iter().any(|r| r.n_generated() == 0));
        stages[2] += usize::from(!world.engine.preempted.is_empty());
    }
    // Clients left while others waited, were prefilling, and were preempted.
    assert!(stages.iter().all(|&n| n > 10), "{stages:?}");
    clients.clear();
    world.engine.turn(clock::now());
    assert_eq!(kv_free(&world), LIMITS.kv_tokens);
    assert_eq!(world.admission.waiting(), 0);
    assert_eq!(world.admission.open_requests(), 0);
    assert_eq!(world.metrics.requests_running.get(), 0);
    assert_eq!(world.metrics.cache.requests_preempted.get(), 0);
}
