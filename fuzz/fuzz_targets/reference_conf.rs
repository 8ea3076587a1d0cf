//! Any text through the reference's configuration parser and into settings: no panic, and what is
//! accepted holds only numbers.
#![no_main]

use libfuzzer_sys::fuzz_target;
use prony_loadgen::conf::apply::{Target, apply};
use prony_loadgen::conf::keys::ConfKind;
use prony_loadgen::conf::number::is_number;
use prony_loadgen::conf::parse::parse;
use prony_loadgen::scenario::Scenario;
use prony_loadgen::settings::TestSettings;
use prony_loadgen::settings::validate::validate_within;

fuzz_target!(|text: &str| {
    let Ok(entries) = parse(text) else { return };
    assert!(entries.values().all(|entry| is_number(&entry.value)));
    for scenario in Scenario::ALL {
        for kind in [ConfKind::Mlperf, ConfKind::User, ConfKind::Audit] {
            let mut settings = TestSettings { scenario, ..TestSettings::default() };
            apply(&mut settings, &entries, kind, Target { model: "m", scenario });
            // Whatever a file may ask for is either planned or refused, never a panic.
            let _ = validate_within(&settings, 25, 10, 1 << 30);
        }
    }
});
