//! Scenario files in, configurations or complaints out.

use proptest::prelude::*;

use super::*;

const GOOD: &str = r#"
name = "demo"
[endpoint]
url = "http://127.0.0.1:8000"
api = "openai-chat"
[dataset]
kind = "synthetic"
n_samples = 4
[generation]
max_tokens = 32
[client]
timeout = "5s"
[settings]
scenario = "Server"
server_target_qps = 2
min_duration = "30s"
server_ttft_latency = "500ms"
"#;

fn parse(text: &str, overrides: &Overrides) -> Result<ScenarioFile, String> {
    ScenarioFile::parse(Path::new("s.toml"), text, overrides).map_err(|errors| {
        errors
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join("\n")
    })
}

fn check_refused(text: &str, expected: &str) {
    let found = parse(text, &Overrides::default()).map(|file| file.name);
    assert_eq!(found, Err(expected.to_owned()), "{text}");
}

fn set(assignments: &[&str]) -> Overrides {
    Overrides {
        assignments: assignments.iter().map(|a| (*a).to_owned()).collect(),
        ..Overrides::default()
    }
}

#[test]
fn a_timeout_of_nothing_is_a_mistake_in_the_file_not_of_the_endpoint() {
    check_refused(
        &GOOD.replace("\"5s\"", "\"0s\""),
        "s.toml:12:1: client.timeout = \"0s\": expected a duration above 0",
    );
}

#[test]
fn reads_a_whole_file() {
    let file = parse(GOOD, &Overrides::default()).unwrap();
    assert_eq!(
        (file.name.as_str(), file.endpoint.api),
        ("demo", ApiKind::OpenAiChat)
    );
    assert_eq!(file.settings.scenario, Scenario::Server);
    assert_eq!(file.settings.server_target_qps, 2.0);
    assert_eq!(file.settings.min_duration_ms, 30_000);
    assert_eq!(file.settings.server_ttft_latency, 500_000_000);
    assert_eq!(file.client.timeout, Nanos::from_secs(5));
    assert_eq!(file.n_connections(), 20);
    assert!(!file.is_quick);
}

#[test]
fn seeds_use_all_64_bits() {
    let file = parse(GOOD, &set(&["schedule_rng_seed=16159082839903944936"])).unwrap();
    assert_eq!(file.settings.schedule_rng_seed, 16_159_082_839_903_944_936);
}

#[test]
fn options_override_any_key() {
    let overrides = Overrides {
        values: vec![(
            "endpoint.url",
            Value::Text("http://h:1".to_owned()),
            "--endpoint http://h:1".to_owned(),
        )],
        quick: true,
        ..set(&[
            "server_target_qps=0.5",
            "generation.max_tokens=3",
            "min_duration=60s",
        ])
    };
    let file = parse(GOOD, &overrides).unwrap();
    assert_eq!(file.endpoint.url.authority(), "h:1");
    assert_eq!(file.settings.server_target_qps, 0.5);
    assert_eq!(file.generation.max_tokens, 3);
    assert_eq!(
        (file.settings.min_duration_ms, file.is_quick),
        (QUICK_DURATION_MS, true)
    );
}

#[test]
fn an_unknown_key_is_refused_with_the_nearest_one() {
    check_refused(
        &GOOD.replace("max_tokens", "max_token"),
        "s.toml:10:1: generation.max_token: unknown key; did you mean generation.max_tokens?",
    );
    check_refused(
        &GOOD.replace("[client]", "[klient]"),
        "s.toml:11:2: klient: unknown key; did you mean client?",
    );
    check_refused(
        &GOOD.replace("server_target_qps", "server_target_qsp"),
        "s.toml:15:1: settings.server_target_qsp: unknown key; \
         did you mean settings.server_target_qps?",
    );
}

#[test]
fn a_wrong_unit_is_refused() {
    check_refused(
        &GOOD.replace("\"30s\"", "30"),
        "s.toml:16:1: settings.min_duration = 30: \
         expected a duration with its unit, such as \"120s\" or \"50ms\"",
    );
    check_refused(
        &GOOD.replace("\"500ms\"", "500"),
        "s.toml:17:1: settings.server_ttft_latency = 500: \
         expected a duration with its unit, such as \"120s\" or \"50ms\"",
    );
    check_refused(
        &GOOD.replace("min_duration = \"30s\"", "min_duration_ms = \"30s\""),
        "s.toml:16:1: settings.min_duration_ms = \"30s\": expected a whole number from 0 (ms)",
    );
    check_refused(
        &GOOD.replace("timeout = \"5s\"", "timeout = \"5 apples\""),
        "s.toml:12:1: client.timeout = \"5 apples\": \
         expected a duration with its unit, such as \"120s\" or \"50ms\"",
    );
}

#[test]
fn all_problems_are_told_at_once() {
    check_refused(
        "[endpoint]\nurl = \"ftp://x\"\napi = \"smoke\"\n[settings]\nscenario = \"Sever\"\n",
        "s.toml:2:1: endpoint.url: scheme ftp: only http is supported\n\
         s.toml:3:1: endpoint.api = \"smoke\": expected one of openai-completions, openai-chat\n\
         s.toml:5:1: settings.scenario = \"Sever\": \
         expected one of SingleStream, MultiStream, Server, Offline",
    );
    check_refused(
        "",
        "s.toml:1:1: endpoint: missing; a table with url, or --endpoint URL\n\
         s.toml:1:1: settings: missing; a table with at least scenario",
    );
}

#[test]
fn a_bad_option_is_named_as_typed() {
    let error = parse(GOOD, &set(&["server_target_qps=many"])).unwrap_err();
    assert_eq!(
        error,
        "--set settings.server_target_qps=many: settings.server_target_qps = \"many\": \
         expected a number (queries/s)"
    );
}

/// A suite measured its first scenario before it refused the rate of its second.
#[test]
fn settings_that_no_run_can_honour_are_refused_with_all_else() {
    let overrides = set(&[
        "server_target_qps=0",
        "server_target_latency_percentile=1.5",
        "min_query_count=-5",
    ]);
    let error = parse(GOOD, &overrides).unwrap_err();
    for line in [
        "--set settings.server_target_qps=0: settings.server_target_qps = 0: must be above 0",
        "settings.server_target_latency_percentile = 1.5: must be above 0 and below 1",
        "settings.min_query_count = -5: expected a whole number from 0",
    ] {
        assert!(error.contains(line), "{line}: {error}");
    }
}

#[test]
fn headers_take_secrets_from_the_environment_only() {
    assert_eq!(
        header_value("x", "a ${NO_SUCH_VARIABLE_7}").unwrap_err(),
        "endpoint.headers.x: NO_SUCH_VARIABLE_7 is not set"
    );
    assert!(header_value("x y", "a").is_err());
    assert!(header_value("x", "a\r\nb: c").is_err());
    assert_eq!(header_value("x", "a").as_deref(), Ok("a"));
}

proptest! {
    #[test]
    fn no_text_panics(text in ".{0,300}") {
        let _ = parse(&text, &Overrides::default());
    }

    #[test]
    fn no_value_panics(
        key in "(name|endpoint(\\.url)?|dataset\\.kind|settings\\.[a-z_]{1,30}|client\\.timeout)",
        value in "(-?[0-9]{1,20}(\\.[0-9]*)?|\"[^\"]{0,10}\"|true|\\[1\\]|\\{a=1\\}|1979-05-27)",
    ) {
        let _ = parse(GOOD, &set(&[&format!("{key}={value}")]));
    }
}
