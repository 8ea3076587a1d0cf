//! Plans on paper, and whole loads simulated without a model.

use std::time::Duration;

use super::*;

/// Seats as unfed counts; `@n` is not ready for n more milliseconds.
fn check(seats: &str, max_tokens: usize, expected: &str) {
    let now = crate::clock::now();
    let seats: Vec<Seat> = seats
        .split_whitespace()
        .map(|word| {
            let (n_unfed, ms) = word.split_once('@').unwrap_or((word, "0"));
            let ms: u64 = ms.parse().unwrap();
            Seat {
                n_unfed: n_unfed.parse().unwrap(),
                ready_at: (ms > 0).then(|| now + Duration::from_millis(ms)),
            }
        })
        .collect();
    let plan = plan(
        &seats,
        StepLimits {
            max_rows: 16,
            max_tokens,
        },
        now,
    );
    let mut words: Vec<String> = plan
        .rows
        .iter()
        .map(|row| {
            format!(
                "{}:{}{}",
                row.seat,
                row.n_tokens,
                if row.draw { "!" } else { "" }
            )
        })
        .collect();
    words.extend(
        plan.wake_at
            .map(|at| format!("wake@{}", (at - now).as_millis())),
    );
    assert_eq!(words.join(" "), expected, "{max_tokens} tokens");
}

#[test]
fn decoding_first_then_prompts_in_chunks() {
    check("", 8, "");
    check("1 1 1", 8, "0:1! 1:1! 2:1!");
    check("5", 8, "0:5!");
    check("20", 8, "0:8");
    // The long prompt came first, and still the decoding row moves in every step.
    check("20 1", 8, "1:1! 0:7");
    check("3 20 1 9", 8, "2:1! 0:3! 1:4");
    check("1 1", 2, "0:1! 1:1!");
    check("9 1 1", 2, "1:1! 2:1!");
    check("1@5 1 4@7", 8, "1:1!");
    check("1@5 4@3", 8, "wake@3");
}

#[test]
fn sequences_start_in_order_while_rows_and_cache_last() {
    let limits = StepLimits {
        max_rows: 4,
        max_tokens: 16,
    };
    assert_eq!(n_starts(0, 100, [10, 20, 30], limits), 3);
    assert_eq!(n_starts(2, 100, [10, 20, 30], limits), 2);
    assert_eq!(n_starts(4, 100, [10], limits), 0);
    // The second does not fit; the third would, but must not overtake it.
    assert_eq!(n_starts(0, 100, [60, 60, 10], limits), 1);
    assert_eq!(n_starts(0, 100, [], limits), 0);
}

/// A made-up load run to its end: every step keeps the budget, no decoding row is ever left out,
/// and everything ends.
#[test]
fn a_simulated_load_keeps_its_promises() {
    let limits = StepLimits {
        max_rows: 8,
        max_tokens: 32,
    };
    let now = crate::clock::now();
    // (prompt, output) of 60 sequences from a small generator; the seed is the 1.
    let mut x: u32 = 1;
    let mut draw = |below: u32| {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (x >> 8) % below
    };
    let mut waiting: Vec<(usize, usize)> = (0..60)
        .map(|_| (1 + draw(100) as usize, 1 + draw(20) as usize))
        .collect();
    waiting.reverse();
    let (mut kv_free, mut n_done, mut n_steps) = (400, 0, 0);
    let mut running: Vec<(Seat, usize, usize)> = Vec::new();
    while n_done < 60 {
        let needed = waiting.iter().rev().map(|(prompt, output)| prompt + output);
        for _ in 0..n_starts(running.len(), kv_free, needed, limits) {
            let (prompt, output) = waiting.pop().unwrap();
            kv_free -= prompt + output;
            running.push((
                Seat {
                    n_unfed: prompt,
                    ready_at: None,
                },
                output,
                prompt + output,
            ));
        }
        let seats: Vec<Seat> = running.iter().map(|(seat, ..)| *seat).collect();
        let plan = plan(&seats, limits, now);
        assert!(
            !plan.rows.is_empty(),
            "work is there and nothing is planned"
        );
        assert!(plan.rows.iter().map(|row| row.n_tokens).sum::<usize>() <= limits.max_tokens);
        let n_decoding = seats.iter().filter(|seat| seat.n_unfed == 1).count();
        assert!(
            plan.rows
                .iter()
                .filter(|row| row.n_tokens == 1 && row.draw)
                .count()
                >= n_decoding
        );
        for row in &plan.rows {
            let (seat, output, _) = &mut running[row.seat];
            seat.n_unfed -= row.n_tokens;
            assert_eq!(row.draw, seat.n_unfed == 0);
            if row.draw {
                *output -= 1;
                seat.n_unfed = 1;
            }
        }
        running.retain(|(_, output, kv)| {
            kv_free += if *output == 0 { *kv } else { 0 };
            n_done += usize::from(*output == 0);
            *output > 0
        });
        n_steps += 1;
        assert!(n_steps < 1000, "the load does not end");
    }
    assert_eq!(kv_free, 400);
}
