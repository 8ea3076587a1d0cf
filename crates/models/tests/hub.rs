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

/// A request that the hub saw.
struct Asked {
    path: String,
    range: Option<String>,
    token: Option<String>,
}

/// A hub with one repository, `org/tiny`, whose every revision is the same.
struct FakeHub {
    address: SocketAddr,
    thread: Option<JoinHandle<Vec<Asked>>>,
}

impl FakeHub {
    fn start(files: BTreeMap<String, Vec<u8>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let serve = move || {
            let mut asked = Vec::new();
            for stream in listener.incoming() {
                match answer(stream.unwrap(), &files) {
                    Some(request) => asked.push(request),
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
    fn stop(&mut self) -> Vec<Asked> {
        let Some(thread) = self.thread.take() else {
            return Vec::new();
        };
        // A connection without a request is the sign to end.
        drop(TcpStream::connect(self.address).unwrap());
        thread.join().unwrap()
    }
}

/// Answers one request with a part of a file or the repository's description.
fn answer(stream: TcpStream, files: &BTreeMap<String, Vec<u8>>) -> Option<Asked> {
    let mut lines = BufReader::new(&stream).lines();
    let first = lines.next()?.ok()?;
    let path = first.split(' ').nth(1)?.to_owned();
    let headers: Vec<String> = lines
        .map_while(Result::ok)
        .take_while(|l| !l.is_empty())
        .collect();
    let header = |wanted: &str| {
        let mut pairs = headers.iter().filter_map(|h| h.split_once(": "));
        let found = pairs.find(|(name, _)| name.eq_ignore_ascii_case(wanted));
        found.map(|(_, value)| value.to_owned())
    };
    let range = header("range").map(|r| r.strip_prefix("bytes=").unwrap().to_owned());
    let asked = Asked {
        path: path.clone(),
        range: range.clone(),
        token: header("authorization"),
    };
    let listing = || {
        let all: Vec<String> = files
            .keys()
            .map(|f| format!(r#"{{"rfilename": "{f}"}}"#))
            .collect();
        format!(r#"{{"sha": "{COMMIT}", "siblings": [{}]}}"#, all.join(", ")).into_bytes()
    };
    let file = path.strip_prefix("/org/tiny/resolve/");
    let whole = match file.and_then(|f| f.split_once('/')) {
        Some((_, file)) => files.get(file).cloned(),
        None => path
            .starts_with("/api/models/org/tiny/revision/")
            .then(listing),
    };
    let mut stream = &stream;
    let Some(whole) = whole else {
        write!(
            stream,
            "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n"
        )
        .unwrap();
        return Some(asked);
    };
    let (start, end) =
        range
            .as_deref()
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
    Some(asked)
}

/// The files of a golden folder that a hub would hold.
fn repository(name: &str) -> BTreeMap<String, Vec<u8>> {
    std::fs::read_dir(golden(&format!("tiny/{name}")))
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| !p.file_stem().unwrap().to_string_lossy().contains("golden"))
        .map(|p| {
            (
                p.file_name().unwrap().to_str().unwrap().to_owned(),
                std::fs::read(p).unwrap(),
            )
        })
        .collect()
}

/// Loads through `hub` and compares the first words with the reference's.
fn check(source: &ModelSource, hub: &Hub, name: &str) {
    let golden = json(&format!("tiny/{name}/golden.json"));
    let first = &golden["prompts"][1];
    let mut model = load_from(source, &options(Dtype::F32), hub).unwrap();
    let out = continue_alone(&mut *model.decoder, &ids(&first["ids"]), 24, None);
    assert_eq!(ids_of(&out), ids(&first["greedy24"]));
}

#[test]
fn a_repository_is_downloaded_once_and_then_read_from_the_cache() {
    let name = "llama_gqa_untied_sharded";
    let mut files = repository(name);
    files.insert("pytorch_model.bin".to_owned(), b"never asked for".to_vec());
    let mut server = FakeHub::start(files);
    let home = tempfile::tempdir().unwrap();
    let source: ModelSource = "org/tiny".parse().unwrap();
    let hub = Hub::at(format!("http://{}", server.address), home.path().to_owned());
    let check = |hub: &Hub| check(&source, hub, name);
    check(&hub);
    check(&hub);
    let asked = server.stop();
    let times = |end: &str| asked.iter().filter(|p| p.path.ends_with(end)).count();
    // Once for the size, once for the content; the second load only asks which commit is newest.
    assert_eq!(times("model-00002-of-00003.safetensors"), 2);
    assert_eq!(
        (times("/revision/main"), times("pytorch_model.bin")),
        (2, 0)
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

#[test]
fn the_variables_of_hugging_face_are_followed() {
    let name = "llama_gqa_tied";
    let home = tempfile::tempdir().unwrap();
    let mut server = FakeHub::start(repository(name));
    let endpoint = format!("http://{}/", server.address);
    let hub = |offline: &str| {
        Hub::from_vars(|variable| match variable {
            "HF_HOME" => Some(home.path().to_str().unwrap().to_owned()),
            "HF_ENDPOINT" => Some(endpoint.clone()),
            "HF_TOKEN" => Some("hf_secret".to_owned()),
            "HF_HUB_OFFLINE" => Some(offline.to_owned()),
            _ => None,
        })
    };
    let source: ModelSource = "org/tiny@v2".parse().unwrap();
    let offline = load_from(&source, &options(Dtype::F32), &hub("1"));
    let problem = offline.err().expect("refused").to_string();
    let cache = home.path().join("hub");
    let expected = format!(
        "org/tiny@v2: not in the cache {}, and HF_HUB_OFFLINE is set",
        cache.display()
    );
    assert_eq!(problem, expected);
    check(&source, &hub("0"), name);
    let asked = server.stop();
    assert!(asked.len() > 5);
    for request in &asked {
        assert_eq!(request.token.as_deref(), Some("Bearer hf_secret"));
        assert!(request.path.contains("/v2"), "{}", request.path);
    }
    // The layout of the cache is the one that other tools of the hub read.
    let repository = cache.join("models--org--tiny");
    let named = std::fs::read_to_string(repository.join("refs/v2")).unwrap();
    assert_eq!(named, COMMIT);
    let weights = format!("snapshots/{COMMIT}/model.safetensors");
    assert!(repository.join(weights).exists());
    check(&source, &hub("1"), name);
}

#[test]
fn a_download_goes_on_where_it_broke_off() {
    let name = "llama_gqa_tied";
    let files = repository(name);
    let half = files["model.safetensors"].len() / 2;
    let home = tempfile::tempdir().unwrap();
    // What a download that was cut off leaves behind: the file under its etag, with an ending.
    let blobs = home.path().join("models--org--tiny/blobs");
    std::fs::create_dir_all(&blobs).unwrap();
    let etag = blobs.join("-org-tiny-resolve-main-model.safetensors");
    let part = etag.with_extension("part");
    std::fs::write(part, &files["model.safetensors"][..half]).unwrap();
    let mut server = FakeHub::start(files);
    let hub = Hub::at(format!("http://{}", server.address), home.path().to_owned());
    check(&"org/tiny".parse().unwrap(), &hub, name);
    let asked = server.stop();
    let weights = asked
        .iter()
        .filter(|a| a.path.ends_with("/model.safetensors"));
    let ranges: Vec<&str> = weights.filter_map(|a| a.range.as_deref()).collect();
    assert_eq!(ranges, ["0-0".to_owned(), format!("{half}-")]);
}
