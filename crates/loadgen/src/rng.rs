//! Random numbers, bit for bit those of the reference: MT19937 under libstdc++'s distributions.
//!
//! Sample order and arrival times are only comparable between load generators that draw the same
//! numbers in the same way, so nothing here may be "improved". What is drawn for which purpose is
//! decided in `schedule`; this file knows no settings.

/// Words of state, and of output per refill.
const N: usize = 624;
/// Distance of the second word that the recurrence mixes in.
const M: usize = 397;
/// Added to the low draw's weight to form 64 bits: 2^64 as a float.
const TWO_POW_64: f64 = 18_446_744_073_709_551_616.0;
/// The largest value below 1, what a quotient that rounds up to 1 is replaced by.
const BELOW_ONE: f64 = 1.0 - f64::EPSILON / 2.0;

/// The seed a `std::mt19937` has when none is given; the accuracy-value stream uses it.
pub const DEFAULT_SEED: u64 = 5489;

/// Which rule turns a 32-bit draw into an integer below `n`.
///
/// The C++ standard leaves it open and libstdc++ changed it in GCC 11, so the "official" order of
/// samples depends on the compiler: the rules give different numbers from `n` ≈ 256 on. Published
/// LoadGen wheels use the new rule since 5.0 (GCC 14), the old one up to 4.1 (GCC 10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StdlibFlavour {
    /// libstdc++ of GCC 10 and older: scale down by division.
    Gcc10,
    /// libstdc++ of GCC 11 and newer: Lemire's multiplication.
    #[default]
    Gcc11,
}

/// The 32-bit Mersenne Twister of Matsumoto and Nishimura (1998), seeded like `std::mt19937`.
#[derive(Debug, Clone)]
pub struct Mt19937 {
    state: [u32; N],
    /// The state after tempering, handed out one by one; made in blocks so that it vectorises.
    out: [u32; N],
    next: usize,
}

impl Mt19937 {
    /// An engine for `seed`, of which only the low 32 bits act, as in the reference.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let mut state = [0_u32; N];
        state[0] = seed as u32;
        for i in 1..N {
            let prev = state[i - 1];
            state[i] = (prev ^ (prev >> 30))
                .wrapping_mul(1_812_433_253)
                .wrapping_add(i as u32);
        }
        Self {
            state,
            out: [0; N],
            next: N,
        }
    }

    /// The next raw draw.
    #[inline]
    pub fn next_u32(&mut self) -> u32 {
        if self.next == N {
            self.refill();
        }
        let word = self.out[self.next];
        self.next += 1;
        word
    }

    /// Passes over `n` raw draws without looking at them.
    pub fn skip(&mut self, n: u64) {
        let mut left = n;
        while left > 0 {
            if self.next == N {
                self.refill();
            }
            let step = left.min((N - self.next) as u64);
            self.next += step as usize;
            left -= step;
        }
    }

    /// A number in `[0, 1)` with 53 random bits: `std::generate_canonical`, two draws, low first.
    ///
    /// Example: draws 2357136044 and 2546248239 (seed 0) give
    /// (2357136044 + 2546248239·2^32) / 2^64 = 0.59284…
    #[inline]
    pub fn uniform01(&mut self) -> f64 {
        let low = u64::from(self.next_u32());
        let high = u64::from(self.next_u32());
        // One rounding, to nearest even, as the reference's sum of doubles has it.
        let u = (high << 32 | low) as f64 / TWO_POW_64;
        if u < 1.0 { u } else { BELOW_ONE }
    }

    /// Nanoseconds to the next arrival of a Poisson process of `rate` per second.
    ///
    /// −ln(1−u)/rate in seconds, cut to whole nanoseconds.
    #[inline]
    pub fn exponential_gap_ns(&mut self, rate: f64) -> i64 {
        let seconds = -(1.0 - self.uniform01()).ln() / rate;
        (seconds * 1e9) as i64
    }

    /// An integer in `[0, n)`; even `n` = 1 takes a draw.
    ///
    /// # Panics
    /// In debug builds if `n` is 0.
    #[inline]
    pub fn below(&mut self, n: u32, flavour: StdlibFlavour) -> u32 {
        debug_assert!(n > 0, "no integer lies below 0");
        match flavour {
            StdlibFlavour::Gcc11 => self.below_by_multiplication(n),
            StdlibFlavour::Gcc10 => self.below_by_division(n),
        }
    }

    /// Puts `items` in random order: `std::shuffle` of libstdc++.
    ///
    /// # Panics
    /// If there are more than `u32::MAX` items.
    pub fn shuffle<T>(&mut self, items: &mut [T], flavour: StdlibFlavour) {
        let n = u32::try_from(items.len()).expect("sample indices are 32 bits wide");
        self.shuffle_with(n, flavour, |a, b| items.swap(a as usize, b as usize));
    }

    /// Makes the draws of shuffling `n` items, for lists the reference shuffles but never reads.
    pub fn skip_shuffle(&mut self, n: u32, flavour: StdlibFlavour) {
        self.shuffle_with(n, flavour, |_, _| {});
    }

    /// Two swaps per draw while the product of both ranges fits 32 bits, else one.
    #[inline]
    fn shuffle_with(&mut self, n: u32, flavour: StdlibFlavour, mut swap: impl FnMut(u32, u32)) {
        if n == 0 {
            return;
        }
        if u32::MAX / n < n {
            for i in 1..n {
                swap(i, self.below(i + 1, flavour));
            }
            return;
        }
        let mut i = 1;
        if n.is_multiple_of(2) {
            swap(1, self.below(2, flavour));
            i = 2;
        }
        while i < n {
            let range = i + 1;
            let both = self.below(range * (range + 1), flavour);
            swap(i, both / (range + 1));
            swap(i + 1, both % (range + 1));
            i += 2;
        }
    }

    /// Lemire, "Fast random integer generation in an interval" (2019), algorithm 5.
    #[inline]
    fn below_by_multiplication(&mut self, n: u32) -> u32 {
        let mut product = u64::from(self.next_u32()) * u64::from(n);
        if (product as u32) < n {
            let threshold = n.wrapping_neg() % n;
            while (product as u32) < threshold {
                product = u64::from(self.next_u32()) * u64::from(n);
            }
        }
        (product >> 32) as u32
    }

    #[inline]
    fn below_by_division(&mut self, n: u32) -> u32 {
        let scale = u32::MAX / n;
        let past = u64::from(n) * u64::from(scale);
        loop {
            let draw = self.next_u32();
            if u64::from(draw) < past {
                return draw / scale;
            }
        }
    }

    /// Advances the state by one whole turn; the three spans keep indices free of remainders.
    #[cold]
    fn refill(&mut self) {
        let s = &mut self.state;
        for i in 0..N - M {
            s[i] = s[i + M] ^ twist(s[i], s[i + 1]);
        }
        for i in N - M..N - 1 {
            s[i] = s[i + M - N] ^ twist(s[i], s[i + 1]);
        }
        s[N - 1] = s[M - 1] ^ twist(s[N - 1], s[0]);
        for (out, word) in self.out.iter_mut().zip(s.iter()) {
            *out = temper(*word);
        }
        self.next = 0;
    }
}

#[inline]
fn twist(this: u32, following: u32) -> u32 {
    let mixed = (this & 0x8000_0000) | (following & 0x7fff_ffff);
    (mixed >> 1) ^ (0x9908_b0df & (following & 1).wrapping_neg())
}

#[inline]
fn temper(word: u32) -> u32 {
    let mut y = word;
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c_5680;
    y ^= (y << 15) & 0xefc6_0000;
    y ^ (y >> 18)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The C++ standard (\[rand.predef\]) fixes the 10000th draw of a default engine.
    #[test]
    fn ten_thousandth_draw_is_the_standards() {
        let mut rng = Mt19937::new(DEFAULT_SEED);
        rng.skip(9_999);
        assert_eq!(rng.next_u32(), 4_123_659_995);
    }

    #[test]
    fn skipping_equals_drawing() {
        for n in [0_u64, 1, 623, 624, 625, 2_000] {
            let mut drawn = Mt19937::new(7);
            let mut skipped = drawn.clone();
            for _ in 0..n {
                drawn.next_u32();
            }
            skipped.skip(n);
            assert_eq!(drawn.next_u32(), skipped.next_u32(), "after {n} draws");
        }
    }

    #[test]
    fn skipped_shuffle_takes_as_many_draws() {
        for n in [0_u32, 1, 2, 3, 64, 65_535, 65_536, 70_001] {
            for flavour in [StdlibFlavour::Gcc10, StdlibFlavour::Gcc11] {
                let mut shuffled = Mt19937::new(9);
                let mut skipped = shuffled.clone();
                let mut list: Vec<u32> = (0..n).collect();
                shuffled.shuffle(&mut list, flavour);
                skipped.skip_shuffle(n, flavour);
                assert_eq!(
                    shuffled.next_u32(),
                    skipped.next_u32(),
                    "{n} items, {flavour:?}"
                );
            }
        }
    }

    /// Small ranges often agree, large ones do not.
    #[test]
    fn the_two_integer_rules_differ() {
        let mut new = Mt19937::new(1);
        let mut old = new.clone();
        let draw = new.clone().next_u32();
        assert_eq!(draw, 1_791_095_845);
        // 1791095845·10 >> 32 = 4; 1791095845 / ⌊(2^32−1)/10⌋ = 1791095845 / 429496729 = 4.
        assert_eq!(new.below(10, StdlibFlavour::Gcc11), 4);
        assert_eq!(old.below(10, StdlibFlavour::Gcc10), 4);
        let n = 1_000_000_007;
        let mut new = Mt19937::new(1);
        let mut old = new.clone();
        // 1791095845·1000000007 >> 32 = 417022001; 1791095845 / ⌊(2^32−1)/n⌋ = 1791095845 / 4.
        assert_eq!(new.below(n, StdlibFlavour::Gcc11), 417_022_001);
        assert_eq!(old.below(n, StdlibFlavour::Gcc10), 447_773_961);
    }
}
