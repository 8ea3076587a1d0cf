//! A model by `org/name`: downloaded from a hub on the loopback, then read without one.

#![allow(
    clippy::unwrap_used,
    reason = "clippy knows a test only by its attribute"
)]

mod golden;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::JoinHandle;

use golden::{continue_alone, golden, ids, ids_of, json, options};
use prony_models::hub::Hub;
use prony_models::{Dtype, ModelSource, load_from};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A hub with one repository, `org/tiny`.
struct FakeHub {
    address: SocketAddr,
    thread: Option<JoinHandle<Vec<String>>>,
}

impl FakeHub {
    fn start(files: BTreeMap<String, Vec<u8>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let serve = move || {
            let mut asked = Vec::new();
            for stream in listener.incoming() {
                match answer(stream.unwrap(), &files) {
                    Some(path) => asked.push(path),
                    None => break,
                }
            }
            asked
        };
        Self {
            address,
            thread: Some(std::thread::spawn(serve)),
        }
    }

    /// Ends the server; what it was asked for, in order.
    fn stop(&mut self) -> Vec<String> {
        let Some(thread) = self.thread.take() else {
            return Vec::new();
        };
        // A connection without a request is the sign to end.
        drop(TcpStream::connect(self.address).unwrap());
        thread.join().unwrap()
    }
}

/// Answers one request with a part of a file or the repository's description.
fn answer(stream: TcpStream, files: &BTreeMap<String, Vec<u8>>) -> Option<String> {
    let mut lines = BufReader::new(&stream).lines();
    let first = lines.next()?.ok()?;
    let path = first.split(' ').nth(1)?.to_owned();
    let headers: Vec<String> = lines
        .map_while(Result::ok)
        .take_while(|l| !l.is_empty())
        .collect();
    let range = headers.iter().find_map(|h| {
        let (name, value) = h.split_once(": ")?;
        name.eq_ignore_ascii_case("range")
            .then(|| value.strip_prefix("bytes="))?
    });
    let listing = || {
        let all: Vec<String> = files
            .keys()
            .map(|f| format!(r#"{{"rfilename": "{f}"}}"#))
            .collect();
        format!(r#"{{"sha": "{COMMIT}", "siblings": [{}]}}"#, all.join(", ")).into_bytes()
    };
    let whole = match path.strip_prefix("/org/tiny/resolve/main/") {
        Some(file) => files.get(file).cloned(),
        None => (path == "/api/models/org/tiny/revision/main").then(listing),
    };
    let mut stream = &stream;
    let Some(whole) = whole else {
        write!(
            stream,
            "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"
        )
        .unwrap();
        return Some(path);
    };
    let (start, end) = range
        .and_then(|r| r.split_once('-'))
        .map_or((0, whole.len()), |(a, b)| {
            (
                a.parse().unwrap(),
                b.parse::<usize>().map_or(whole.len(), |last| last + 1),
            )
        });
    let body = &whole[start..end];
    write!(
        stream,
        "HTTP/1.1 206 Partial Content\r\ncontent-length: {}\r\ncontent-range: bytes {start}-{}/{}\
         \r\nx-repo-commit: {COMMIT}\r\netag: \"{}\"\r\nconnection: close\r\n\r\n",
        body.len(),
        end.saturating_sub(1),
        whole.len(),
        path.replace('/', "-"),
    )
    .unwrap();
    // A client that has seen enough may close early.
    let _ = stream.write_all(body);
    Some(path)
}

#[test]
fn a_repository_is_downloaded_once_and_then_read_from_the_cache() {
    let name = "llama_gqa_untied_sharded";
    let mut files: BTreeMap<String, Vec<u8>> = std::fs::read_dir(golden(&format!("tiny/{name}")))
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| !p.file_stem().unwrap().to_string_lossy().contains("golden"))
        .map(|p| {
            (
                p.file_name().unwrap().to_str().unwrap().to_owned(),
                std::fs::read(p).unwrap(),
            )
        })
        .collect();
    files.insert("pytorch_model.bin".to_owned(), b"never asked for".to_vec());
    let mut server = FakeHub::start(files);
    let home = tempfile::tempdir().unwrap();
    let source: ModelSource = "org/tiny".parse().unwrap();
    let hub = Hub::at(format!("http://{}", server.address), home.path().to_owned());
    let golden = json(&format!("tiny/{name}/golden.json"));
    let first = &golden["prompts"][1];
    let check = |hub: &Hub| {
        let mut model = load_from(&source, &options(Dtype::F32), hub).unwrap();
        let out = continue_alone(&mut *model.decoder, &ids(&first["ids"]), 24, None);
        assert_eq!(ids_of(&out), ids(&first["greedy24"]));
    };
    check(&hub);
    check(&hub);
    let asked = server.stop();
    let times = |end: &str| asked.iter().filter(|p| p.ends_with(end)).count();
    // Once for the size, once for the content; the second load only asks which commit is newest.
    assert_eq!(times("model-00002-of-00003.safetensors"), 2, "{asked:?}");
    assert_eq!(
        (times("/revision/main"), times("pytorch_model.bin")),
        (2, 0),
        "{asked:?}"
    );
    // The hub is gone: the cache serves on, asked for or not.
    check(&hub);
    check(&Hub::offline(home.path().to_owned()));
    let other = load_from(&"org/other".parse().unwrap(), &options(Dtype::F32), &hub);
    let problem = other.err().expect("refused").to_string();
    let start = format!("org/other@main: http://{}: ", server.address);
    assert!(problem.starts_with(&start), "{problem}");
    assert!(!problem.contains('\n'), "{problem}");
}
