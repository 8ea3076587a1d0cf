//! Any text through the strict parser: problems point into the text, and what is accepted means
//! the same to the reference's parser.
#![no_main]

use libfuzzer_sys::fuzz_target;
use prony_loadgen::conf::keys::ConfKind;
use prony_loadgen::conf::{parse, strict};

fuzz_target!(|text: &str| {
    match strict::parse(text, ConfKind::User, "m") {
        Ok(entries) => assert_eq!(parse::parse(text), Ok(entries)),
        Err(problems) => {
            let lines: Vec<&str> = text.split('\n').collect();
            for problem in problems {
                let line = lines[problem.line - 1];
                assert!((1..=line.chars().count()).contains(&problem.column), "{problem:?}");
            }
        }
    }
});
