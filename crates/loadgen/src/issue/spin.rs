//! Whether spinning before a due time pays: not where the thread loses its core while it spins.
//!
//! A thread that has just slept is let onto a core at once; one that spins uses up its share and
//! is put off for milliseconds as soon as others want the core, and every query due meanwhile is
//! late. On two busy cores spinning made the 90th percentile of issue lag at 10 k/s 40 times worse
//! than sleeping; on a free core, and at rates whose gaps are shorter than a sleep, it is 300
//! times better. So lag decides: where it is large, the other way is tried and the better kept.

use crate::clock::Nanos;

/// Queries that are judged together.
const WINDOW: u32 = 256;

/// Mean lag of a window below which nothing is tried: twice what sleeping costs (20–50 µs).
const GOOD_MEAN_LAG: Nanos = Nanos::from_us(100);

/// Windows for which a choice is kept.
const KEPT: u32 = 16;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Spinning; judged again after this many windows.
    Spin { kept: u32 },
    /// Sleeping for one window, to be compared with the sum of lags of the last spun one.
    TrySleep { spun_lag: Nanos },
    /// Sleeping; spinning is tried again after this many windows.
    Sleep { kept: u32 },
}

/// Decides query by query; one for each issuing thread.
#[derive(Debug, Clone, Copy)]
pub(super) struct Spin {
    stretch: Nanos,
    way: Way,
    /// Queries left in this window.
    left: u32,
    lag_sum: Nanos,
}

impl Spin {
    pub(super) fn new(stretch: Nanos) -> Self {
        Self {
            stretch,
            way: Way::Spin { kept: 0 },
            left: WINDOW,
            lag_sum: Nanos::ZERO,
        }
    }

    /// How long to spin before the next due time.
    #[inline]
    pub(super) fn stretch(&self) -> Nanos {
        match self.way {
            Way::Spin { .. } => self.stretch,
            Way::TrySleep { .. } | Way::Sleep { .. } => Nanos::ZERO,
        }
    }

    /// Learns how late a query was, waited for or overdue.
    #[inline]
    pub(super) fn issued(&mut self, lag: Nanos) {
        self.lag_sum += lag;
        self.left -= 1;
        if self.left == 0 {
            self.judge();
        }
    }

    #[cold]
    fn judge(&mut self) {
        let lag_sum = self.lag_sum;
        let is_good = lag_sum <= Nanos(GOOD_MEAN_LAG.0 * i64::from(WINDOW));
        self.way = match self.way {
            // Spin -> Spin: kept, or good enough.
            Way::Spin { kept } if kept > 0 => Way::Spin { kept: kept - 1 },
            Way::Spin { .. } if is_good => Way::Spin { kept: 0 },
            // Spin -> TrySleep: large lag; is it the spinning?
            Way::Spin { .. } => Way::TrySleep { spun_lag: lag_sum },
            // TrySleep -> Sleep: clearly better. One window is a small sample, hence the half.
            Way::TrySleep { spun_lag } if lag_sum < Nanos(spun_lag.0 / 2) => {
                Way::Sleep { kept: KEPT }
            }
            // TrySleep -> Spin: it was not the spinning.
            Way::TrySleep { .. } => Way::Spin { kept: KEPT },
            // Sleep -> Sleep: kept.
            Way::Sleep { kept } if kept > 1 => Way::Sleep { kept: kept - 1 },
            // Sleep -> Spin: the core may be free by now.
            Way::Sleep { .. } => Way::Spin { kept: 0 },
        };
        self.left = WINDOW;
        self.lag_sum = Nanos::ZERO;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STRETCH: Nanos = Nanos::from_us(100);

    /// Windows in a row, `S` spun and `z` slept, where each query is late by so many µs.
    fn windows(n: u32, spun_us: i64, slept_us: i64) -> String {
        let mut spin = Spin::new(STRETCH);
        let mut ways = String::new();
        for _ in 0..n {
            let spins = spin.stretch() == STRETCH;
            ways.push(if spins { 'S' } else { 'z' });
            for _ in 0..WINDOW {
                spin.issued(Nanos::from_us(if spins { spun_us } else { slept_us }));
            }
        }
        ways
    }

    #[test]
    fn a_free_core_is_always_spun_on() {
        assert_eq!(windows(20, 0, 40), "SSSSSSSSSSSSSSSSSSSS");
        assert_eq!(windows(20, 100, 40), "SSSSSSSSSSSSSSSSSSSS");
    }

    #[test]
    fn a_busy_core_is_left_alone_and_tried_again() {
        assert_eq!(windows(20, 250, 40), "SzzzzzzzzzzzzzzzzzSz");
    }

    /// An overloaded client, or gaps shorter than a sleep: lag is not the spinning's fault.
    #[test]
    fn lag_that_sleeping_does_not_cure_is_spun_through() {
        assert_eq!(windows(20, 250, 200), "SzSSSSSSSSSSSSSSSSSz");
    }

    #[test]
    fn what_never_spins_stays_so() {
        assert_eq!(Spin::new(Nanos::ZERO).stretch(), Nanos::ZERO);
    }
}
