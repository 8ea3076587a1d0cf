//! Flags against each other, and their messages.

use super::*;

fn check(flags: &str, expected: &str) {
    let words = ["prony-sut", "serve"]
        .into_iter()
        .chain(flags.split_whitespace());
    let shown = match Cli::try_parse_from(words) {
        Err(e) => e.to_string().lines().next().unwrap_or_default().to_owned(),
        Ok(Cli {
            command: Command::Serve(args),
        }) => match args.validate() {
            Ok(config) => config.served_model_name,
            Err(e) => e.to_string(),
        },
        Ok(_) => "not serve".to_owned(),
    };
    assert_eq!(shown, expected, "{flags}");
}

#[test]
fn flags_are_checked_against_each_other() {
    check("--backend echo", "echo");
    check("--backend echo --served-model-name m", "m");
    check(
        "--backend echo --max-batch-rows 64 --max-batch-tokens 63",
        "--max-batch-tokens 63: must be at least --max-batch-rows (64)",
    );
    check(
        "--backend echo --max-queue 0",
        "--max-queue 0: must be at least 1",
    );
    check(
        "--backend echo --echo-tokens 0",
        "--echo-tokens 0: must be at least 1",
    );
    check(
        "--backend echo --echo-ttft 20",
        "error: invalid value '20' for '--echo-ttft <ECHO_TTFT>': 20: expected a number and a \
         unit, such as 1.5s, 20ms or 300us",
    );
}

#[test]
#[cfg(feature = "torch")]
fn the_torch_backend_needs_a_model() {
    check("", "--model (none): the torch backend needs a model");
    check("--model a/b/SmolLM2", "SmolLM2");
    check("--model org/name@v1.0", "name");
    check("--model dir/x.Q4_1.gguf", "x.Q4_1");
    check("--model m --threads 0", "--threads 0: must be at least 1");
}

#[test]
fn a_flag_the_backend_does_not_use_is_checked_all_the_same() {
    check(
        "--backend echo --threads 0",
        "--threads 0: must be at least 1",
    );
}

#[test]
fn the_flags_of_connections_are_checked() {
    check(
        "--backend echo --max-connections 0",
        "--max-connections 0: must be at least 1",
    );
    check(
        "--backend echo --idle-timeout 0s",
        "--idle-timeout 0ns: must be at least 1ms",
    );
    check(
        "--backend echo --tls-cert c.pem",
        "--tls-cert c.pem: needs --tls-key",
    );
    check(
        "--backend echo --tls-key k.pem",
        "--tls-key k.pem: needs --tls-cert",
    );
    // No system lets a process open so many files.
    let args = [
        "prony-sut",
        "serve",
        "--backend",
        "echo",
        "--max-connections",
        "9999999999999",
    ];
    let Command::Serve(args) = Cli::parse_from(args).command else {
        panic!("serve");
    };
    let error = args.validate().expect_err("refused").to_string();
    let start = "--max-connections 9999999999999: the system's limit of open files allows ";
    assert!(error.starts_with(start), "{error}");
}

#[test]
fn sizes_that_no_machine_has_are_refused_not_tried() {
    check(
        "--backend echo --http-threads 100000",
        "--http-threads 100000: must be at most 1024",
    );
    check(
        "--backend echo --threads 1025",
        "--threads 1025: must be at most 1024",
    );
    check(
        "--backend echo --kv-tokens 18446744073709551615",
        "--kv-tokens 18446744073709551615: must be at most 1073741824",
    );
    check(
        "--backend echo --echo-itl 1e15s",
        "error: invalid value '1e15s' for '--echo-itl <ECHO_ITL>': 1e15s: longer than a year",
    );
}

#[test]
fn durations_need_a_unit() {
    assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
    assert_eq!(duration("20ms"), Ok(Duration::from_millis(20)));
    assert_eq!(duration("300us"), Ok(Duration::from_micros(300)));
    for bad in ["", "5", "s", "-1s", "1m", "1 s", "nans", "infs", "1e300s"] {
        assert!(duration(bad).is_err(), "{bad}");
    }
}
