//! What the run is doing, while it does it: a live line on a terminal, plain lines otherwise.
//!
//! Reads counters a few times a second from a thread of its own and never waits for a key. All
//! of it goes to stderr; results go to stdout.

use std::collections::VecDeque;
use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use prony_loadgen::clock::{Nanos, TimeSource};
use prony_loadgen::progress::{Progress, ProgressSnapshot};
use prony_loadgen::scenario::Scenario;
use prony_loadgen::settings::TestSettings;

use crate::terminal;

/// How often the live line is drawn: often enough to look alive, rare enough to cost nothing.
const LIVE_INTERVAL: Duration = Duration::from_millis(250);

/// How often a plain line is printed.
const PLAIN_INTERVAL: Duration = Duration::from_secs(10);

/// Rates are those of the last so long: over one look a slow endpoint would mostly show 0.
const RATE_WINDOW: Nanos = Nanos::from_secs(10);

/// What the end of a run depends on.
#[derive(Debug, Clone, Copy)]
pub struct Goal {
    scenario: Scenario,
    min_duration: Nanos,
    min_queries: u64,
}

impl Goal {
    /// The goal of a run with these settings.
    #[must_use]
    pub fn of(settings: &TestSettings) -> Self {
        Self {
            scenario: settings.scenario,
            min_duration: Nanos::from_ms(i64::try_from(settings.min_duration_ms).unwrap_or(0)),
            min_queries: settings.min_query_count,
        }
    }

    /// Share of the run that is over, as far as can be told.
    fn share_done(&self, snapshot: &ProgressSnapshot, now: Nanos) -> f64 {
        let share = |done: f64, of: f64| if of > 0.0 { (done / of).min(1.0) } else { 1.0 };
        let by_plan = share(snapshot.completed as f64, snapshot.planned as f64);
        match self.scenario {
            // These stop when both minimums are met, long before the plan is exhausted.
            Scenario::SingleStream | Scenario::MultiStream => {
                let elapsed = (now - snapshot.start).as_secs_f64();
                let by_time = share(elapsed, self.min_duration.as_secs_f64());
                by_time
                    .min(share(snapshot.completed as f64, self.min_queries as f64))
                    .max(by_plan)
            }
            Scenario::Server | Scenario::Offline => by_plan,
        }
    }
}

/// Shows progress until it is dropped.
#[derive(Debug)]
pub struct ProgressDisplay {
    stop: Option<SyncSender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ProgressDisplay {
    /// Starts showing; `quiet` shows nothing.
    #[must_use]
    pub fn start(
        name: &str,
        goal: Goal,
        progress: Arc<Progress>,
        time: TimeSource,
        quiet: bool,
    ) -> Self {
        if quiet {
            return Self {
                stop: None,
                thread: None,
            };
        }
        let (stop, stopped) = sync_channel(1);
        let is_live = std::io::stderr().is_terminal();
        let view = View {
            name: name.to_owned(),
            goal,
            time,
            looks: VecDeque::new(),
        };
        let show = move || {
            let bar = is_live.then(live_bar);
            let interval = if is_live {
                LIVE_INTERVAL
            } else {
                PLAIN_INTERVAL
            };
            let mut view = view;
            while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                if let Some(snapshot) = progress.snapshot() {
                    view.show(&snapshot, bar.as_ref());
                }
            }
            if let Some(bar) = bar {
                bar.finish_and_clear();
            }
        };
        // Without a thread for it there is no display; the run is what matters.
        let thread = std::thread::Builder::new()
            .name("prony-progress".to_owned())
            .spawn(show)
            .ok();
        Self {
            stop: Some(stop),
            thread,
        }
    }
}

impl Drop for ProgressDisplay {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn live_bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(1000), ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("{bar:24} {msg}") {
        bar.set_style(style.progress_chars("━╸─"));
    }
    bar
}

struct View {
    name: String,
    goal: Goal,
    time: TimeSource,
    /// Times and counters of the looks of the last [`RATE_WINDOW`], and of the one before.
    looks: VecDeque<(Nanos, ProgressSnapshot)>,
}

impl View {
    fn show(&mut self, snapshot: &ProgressSnapshot, bar: Option<&ProgressBar>) {
        let now = self.time.now();
        let line = self.show_at(snapshot, now);
        match bar {
            Some(bar) => {
                bar.set_position((self.goal.share_done(snapshot, now) * 1000.0) as u64);
                bar.set_message(line);
            }
            None => terminal::note(&line),
        }
    }

    /// The line of now; the look is kept for the rates of those to come.
    fn show_at(&mut self, snapshot: &ProgressSnapshot, now: Nanos) -> String {
        let line = self.line(snapshot, now);
        self.looks.push_back((now, *snapshot));
        let is_old = |(at, _): &(Nanos, ProgressSnapshot)| now - *at >= RATE_WINDOW;
        while self.looks.get(1).is_some_and(is_old) {
            self.looks.pop_front();
        }
        line
    }

    fn line(&self, snapshot: &ProgressSnapshot, now: Nanos) -> String {
        let of_this_phase = |(_, look): &&(Nanos, ProgressSnapshot)| look.start == snapshot.start;
        let (since, before) = match self.looks.iter().find(of_this_phase) {
            Some((at, look)) => (*at, (look.completed, look.tokens)),
            None => (snapshot.start, (0, 0)),
        };
        let seconds = (now - since).as_secs_f64().max(1e-3);
        let rate = (snapshot.completed - before.0) as f64 / seconds;
        let tokens = (snapshot.tokens - before.1) as f64 / seconds;
        let mut line = format!(
            "{} {}: {:.0} s, {} done, {} in flight, {rate:.1} done/s",
            self.name,
            snapshot.phase,
            (now - snapshot.start).as_secs_f64(),
            snapshot.completed,
            snapshot.in_flight,
        );
        if snapshot.tokens > 0 {
            line.push_str(&format!(", {tokens:.0} tokens/s"));
        }
        if let Some(ttft) = snapshot.last_ttft {
            line.push_str(&format!(", TTFT {:.0} ms", ttft.as_secs_f64() * 1e3));
        }
        line.push_str(&format!(", {} errors", snapshot.failed));
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot() -> ProgressSnapshot {
        ProgressSnapshot {
            phase: "performance",
            planned: 100,
            issued: 30,
            completed: 25,
            failed: 1,
            tokens: 250,
            in_flight: 5,
            start: Nanos::ZERO,
            last_ttft: Some(Nanos::from_ms(52)),
        }
    }

    fn goal(scenario: Scenario) -> Goal {
        Goal {
            scenario,
            min_duration: Nanos::from_secs(10),
            min_queries: 50,
        }
    }

    #[test]
    fn the_share_done_follows_what_ends_the_scenario() {
        let at = Nanos::from_secs(4);
        assert_eq!(goal(Scenario::Server).share_done(&snapshot(), at), 0.25);
        assert_eq!(
            goal(Scenario::SingleStream).share_done(&snapshot(), at),
            0.4
        );
    }

    #[test]
    fn a_line_tells_the_rates_of_the_last_seconds() {
        let time = TimeSource::Virtual(Arc::default());
        let goal = goal(Scenario::Server);
        let mut view = View {
            name: "demo".to_owned(),
            goal,
            time,
            looks: VecDeque::new(),
        };
        let shown = view.line(&snapshot(), Nanos::from_secs(5));
        assert_eq!(
            shown,
            "demo performance: 5 s, 25 done, 5 in flight, 5.0 done/s, 50 tokens/s, TTFT 52 ms, \
             1 errors"
        );
        // Nothing new in the last look, but five in the ten seconds before.
        let five_less = ProgressSnapshot {
            completed: 20,
            ..snapshot()
        };
        for (second, look) in [(0, five_less), (5, snapshot()), (9, snapshot())] {
            view.show_at(&look, Nanos::from_secs(second));
        }
        let rate = |view: &View, second| view.line(&snapshot(), Nanos::from_secs(second));
        assert!(
            rate(&view, 10).contains(" 0.5 done/s"),
            "{}",
            rate(&view, 10)
        );
        // A look of another phase is no beginning for this one.
        let other = ProgressSnapshot {
            start: Nanos::from_secs(10),
            completed: 4,
            ..snapshot()
        };
        assert!(
            view.line(&other, Nanos::from_secs(12))
                .contains(" 2.0 done/s")
        );
        // What is older than the window is forgotten.
        view.show_at(&snapshot(), Nanos::from_secs(15));
        view.show_at(&snapshot(), Nanos::from_secs(20));
        assert!(
            rate(&view, 21).contains(" 0.0 done/s"),
            "{}",
            rate(&view, 21)
        );
    }
}
