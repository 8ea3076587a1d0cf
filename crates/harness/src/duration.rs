//! Durations as people write them: a number and its unit.

use prony_loadgen::clock::Nanos;

/// Units, longest spelling first where one is the end of another.
const UNITS: [(&str, f64); 6] = [
    ("ns", 1.0),
    ("us", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("m", 60e9),
    ("h", 3_600e9),
];

/// Longest duration taken: a thousand hours. Nobody waits longer, and sums stay far from overflow.
const MAX_NS: f64 = 3.6e15;

/// Reads `120s`, `50ms`, `1.5h`.
///
/// # Errors
/// What would have been a duration, if `text` is none.
pub fn parse(text: &str) -> Result<Nanos, &'static str> {
    const EXPECTED: &str = "a duration with its unit, such as \"120s\" or \"50ms\"";
    let text = text.trim();
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .ok_or(EXPECTED)?;
    let (number, unit) = text.split_at(digits);
    let number: f64 = number.parse().map_err(|_| EXPECTED)?;
    let (_, factor) = UNITS
        .iter()
        .find(|(name, _)| *name == unit.trim())
        .ok_or(EXPECTED)?;
    let ns = number * factor;
    if ns > MAX_NS {
        return Err("a duration of at most 1000h");
    }
    Ok(Nanos(ns.round() as i64))
}

/// [`parse`] for the command line.
///
/// # Errors
/// As [`parse`].
pub fn parse_arg(text: &str) -> Result<Nanos, String> {
    parse(text).map_err(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_every_unit() {
        for (text, ns) in [
            ("120s", 120_000_000_000),
            ("50ms", 50_000_000),
            ("1.5us", 1_500),
            ("7ns", 7),
            ("2m", 120_000_000_000),
            ("1h", 3_600_000_000_000),
            ("0s", 0),
            (" 3 s", 3_000_000_000),
        ] {
            assert_eq!(parse(text), Ok(Nanos(ns)), "{text}");
        }
    }

    #[test]
    fn refuses_what_has_no_unit_or_sense() {
        for text in [
            "30",
            "",
            "s",
            "-1s",
            "1.2.3s",
            "5 parsecs",
            "1e3s",
            "9999999h",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
