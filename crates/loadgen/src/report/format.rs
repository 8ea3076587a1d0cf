//! Numbers, times and strings in the shapes the reference's C++ streams give them.

/// A double as a C++ stream prints it by default: `%g`, six significant digits.
///
/// Undefined values print as `-nan`, which is what 0/0 gives the reference.
/// Examples: 30.303030 → `30.303`, 1234567 → `1.23457e+06`, 1000000 → `1e+06`, 0.00001 → `1e-05`.
#[must_use]
pub fn general(value: f64) -> String {
    if let Some(special) = not_finite(value) {
        return special.to_owned();
    }
    // Rounding first: 999999.5 has six digits and exponent 6 only after it.
    let scientific = format!("{value:.5e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) {
        let decimals = (5 - exponent).unsigned_abs() as usize;
        return trim_zeros(&format!("{value:.decimals$}")).to_owned();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!(
        "{}e{sign}{:02}",
        trim_zeros(mantissa),
        exponent.unsigned_abs()
    )
}

/// A double with two decimals, as the summary prints rates.
#[must_use]
pub fn fixed2(value: f64) -> String {
    not_finite(value).map_or_else(|| format!("{value:.2}"), str::to_owned)
}

fn not_finite(value: f64) -> Option<&'static str> {
    if value.is_nan() {
        Some("-nan")
    } else if value == f64::INFINITY {
        Some("inf")
    } else if value == f64::NEG_INFINITY {
        Some("-inf")
    } else {
        None
    }
}

fn trim_zeros(digits: &str) -> &str {
    if digits.contains('.') {
        digits.trim_end_matches('0').trim_end_matches('.')
    } else {
        digits
    }
}

/// A JSON string, quoted and escaped; the reference leaves quotes inside as they are.
#[must_use]
pub fn json_string(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Nanoseconds as microseconds with three decimals, exact, as the trace prints times.
///
/// Example: −36 330 → `-36.330`.
#[must_use]
pub fn micros(ns: i64) -> String {
    let sign = if ns < 0 { "-" } else { "" };
    let ns = ns.unsigned_abs();
    format!("{sign}{}.{:03}", ns / 1000, ns % 1000)
}

/// A moment of UTC, split into calendar fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Calendar {
    year: i64,
    month: u32,
    day: u32,
    hour: u32,
    minute: u32,
    second: u32,
    millisecond: u32,
}

/// `2026-11-30T22:11:13Z`, from nanoseconds since 1970-01-01 UTC.
///
/// The reference prints local time with the same Z; this is UTC, as the Z says.
#[must_use]
pub fn iso_datetime(unix_ns: i64) -> String {
    let c = calendar(unix_ns);
    format!(
        "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z",
        c.year, c.month, c.day, c.hour, c.minute, c.second
    )
}

/// `11-30-2026 22:11:13.640`, as `power_begin` and `power_end` print UTC.
#[must_use]
pub fn power_time(unix_ns: i64) -> String {
    let c = calendar(unix_ns);
    format!(
        "{:02}-{:02}-{:04} {:02}:{:02}:{:02}.{:03}",
        c.month, c.day, c.year, c.hour, c.minute, c.second, c.millisecond
    )
}

/// Gregorian date of a day count; years are counted from March, so that leap days come last.
///
/// Source: the "civil from days" derivation by Howard Hinnant, "chrono-compatible low-level date
/// algorithms".
fn calendar(unix_ns: i64) -> Calendar {
    let ms = unix_ns.div_euclid(1_000_000);
    let (days, ms_of_day) = (ms.div_euclid(86_400_000), ms.rem_euclid(86_400_000));
    let since_march = days + 719_468; // days from 0000-03-01
    let era = since_march.div_euclid(146_097);
    let day_of_era = since_march.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    Calendar {
        year: year_of_era + era * 400 + i64::from(month <= 2),
        month: month as u32,
        day: (day_of_year - (153 * month_from_march + 2) / 5 + 1) as u32,
        hour: (ms_of_day / 3_600_000) as u32,
        minute: (ms_of_day / 60_000 % 60) as u32,
        second: (ms_of_day / 1000 % 60) as u32,
        millisecond: (ms_of_day % 1000) as u32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_as_printf_g_prints_them() {
        // Expected values from `printf '%g\n'`.
        for (value, text) in [
            (0.0, "0"),
            (1.0, "1"),
            (-5.0, "-5"),
            (0.9, "0.9"),
            (0.950_000_000_000_000_1, "0.95"),
            (30.303_030_303, "30.303"),
            (994.822, "994.822"),
            (999_999.4, "999999"),
            (999_999.5, "1e+06"),
            (1_000_000.0, "1e+06"),
            (1_000_005.0, "1e+06"),
            (1_234_567.0, "1.23457e+06"),
            (0.0001, "0.0001"),
            (0.000_01, "1e-05"),
            (2.968_31e-7, "2.96831e-07"),
            (1e100, "1e+100"),
            (f64::INFINITY, "inf"),
            (f64::NAN, "-nan"),
        ] {
            assert_eq!(general(value), text);
        }
    }

    #[test]
    fn two_decimals_round_half_to_even_of_the_exact_value() {
        for (value, text) in [
            (0.125, "0.12"),
            (0.375, "0.38"),
            (1e6, "1000000.00"),
            (-0.001, "-0.00"),
        ] {
            assert_eq!(fixed2(value), text);
        }
    }

    #[test]
    fn micros_keep_every_nanosecond() {
        assert_eq!(micros(1), "0.001");
        assert_eq!(micros(-36_330), "-36.330");
        assert_eq!(micros(10_063_226), "10063.226");
        assert_eq!(micros(i64::MIN), "-9223372036854775.808");
    }

    #[test]
    fn calendar_at_the_edges() {
        // Expected values from `date -u -d @N`.
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (-1, "1969-12-31T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (1_796_076_673, "2026-11-30T22:11:13Z"),
        ] {
            assert_eq!(iso_datetime(seconds * 1_000_000_000), text);
        }
        assert_eq!(
            power_time(1_796_076_673_640_999_999),
            "11-30-2026 22:11:13.640"
        );
    }

    #[test]
    fn strings_are_escaped() {
        assert_eq!(json_string("a \"b\"\n\\"), r#""a \"b\"\n\\""#);
    }
}
