//! Stop strings and characters over every cut of the bytes.

use proptest::prelude::*;
use proptest::test_runner::RngSeed;

use super::*;

/// Feeds `tokens` and shows what left after each, `|` between, and how it ended.
fn feed(tokens: &[&[u8]], stop: &[&str]) -> (Vec<String>, bool) {
    let stop: Vec<String> = stop.iter().map(|&s| s.to_owned()).collect();
    let mut assembler = Assembler::new(&stop);
    let mut pieces = Vec::new();
    for token in tokens {
        let mut piece = String::new();
        let stopped = assembler.push(token, &mut piece);
        pieces.push(piece);
        if stopped {
            return (pieces, true);
        }
    }
    let mut rest = String::new();
    assembler.flush(&mut rest);
    pieces.push(rest);
    (pieces, false)
}

fn check(tokens: &[&str], stop: &[&str], expected: &str) {
    let bytes: Vec<&[u8]> = tokens.iter().map(|t| t.as_bytes()).collect();
    let (pieces, stopped) = feed(&bytes, stop);
    let end = if stopped { "#" } else { "" };
    assert_eq!(
        format!("{}{end}", pieces.join("|")),
        expected,
        "{tokens:?} stop {stop:?}"
    );
}

#[test]
fn text_is_held_back_exactly_while_it_could_become_a_stop_string() {
    check(&["ab", "c"], &[], "ab|c|");
    check(&["abDEF", "G", "HI", "Jxy"], &["DEFGHIJ"], "ab|||#");
    check(&["abDEF", "G", "HX"], &["DEFGHIJ"], "ab||DEFGHX|");
    // Nothing of the stop string occurs: the pieces are as without it.
    check(&["a", "b", "c"], &["zzz"], "a|b|c|");
    // The tail falls back to a shorter prefix, and only that much is kept.
    check(&["aab", "aac"], &["aabaad"], "|aabaac|");
    check(&["xaabaa", "bz"], &["aabaad"], "x|aabaabz|");
    // Held text leaves at the end.
    check(&["ends in DE"], &["DEF"], "ends in |DE");
    check(&["STOP"], &["STOP"], "#");
    check(&["a\n\n"], &["\n\n"], "a#");
    // The stop string stands inside one token: what follows it is gone.
    check(&["one END two"], &["END"], "one #");
}

#[test]
fn of_several_stop_strings_the_first_complete_one_wins() {
    check(&["abcd"], &["bcd", "c"], "ab#");
    check(&["abcd"], &["cd", "bcd"], "a#");
    check(&["ab", "cd"], &["bX", "bcd"], "a|#");
}

#[test]
fn characters_wait_for_their_last_byte() {
    let emoji = "😀".as_bytes();
    let (pieces, _) = feed(&[&emoji[..1], &emoji[1..3], &emoji[3..], b"!"], &[]);
    assert_eq!(pieces, ["", "", "😀", "!", ""]);
    // A run that can never be a character is replaced at once, a cut one at the end.
    let (pieces, _) = feed(&[b"a\xFFb", &emoji[..2]], &[]);
    assert_eq!(pieces, ["a\u{FFFD}b", "", "\u{FFFD}"]);
    // A stop string right after an unfinished character.
    let (pieces, stopped) = feed(&[&emoji[..2], b"END"], &["END"]);
    assert_eq!((pieces.concat().as_str(), stopped), ("\u{FFFD}", true));
    // A stop string that shares its first byte with another character.
    let (pieces, _) = feed(&["é".as_bytes(), b"x"], &["è"]);
    assert_eq!(pieces, ["é", "x", ""]);
}

/// What the rules say, computed the slow way on the whole text.
fn by_definition(bytes: &[u8], stop: &[String]) -> (String, bool) {
    for end in 1..=bytes.len() {
        let longest = stop
            .iter()
            .filter(|s| bytes[..end].ends_with(s.as_bytes()))
            .map(String::len)
            .max();
        if let Some(len) = longest {
            return (
                String::from_utf8_lossy(&bytes[..end - len]).into_owned(),
                true,
            );
        }
    }
    (String::from_utf8_lossy(bytes).into_owned(), false)
}

proptest! {
    #![proptest_config(ProptestConfig {
        rng_seed: RngSeed::Fixed(31),
        failure_persistence: None,
        cases: 2000,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_cut_gives_the_text_of_the_definition(
        tokens in prop::collection::vec(
            prop::sample::select(vec![
                &b"a"[..], b"b", b"ab", b"ba", b"aab", b"", "é".as_bytes(), b"\xC3", b"\xA9",
                b"\xF0\x9F", b"\x98\x80", b"\xFF",
            ]),
            0..24,
        ),
        stop in prop::collection::vec("[ab]{1,4}|é|aé", 0..4),
    ) {
        let refs: Vec<&str> = stop.iter().map(String::as_str).collect();
        let (pieces, stopped) = feed(&tokens, &refs);
        let whole = tokens.concat();
        prop_assert_eq!((pieces.concat(), stopped), by_definition(&whole, &stop));
    }
}
