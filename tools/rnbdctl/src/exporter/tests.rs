// SPDX-License-Identifier: GPL-2.0

use std::io::Read;
use std::io::Write;
use std::net::SocketAddr;
use std::net::TcpListener;
use std::net::TcpStream;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::sync::Arc;
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use super::metrics::Snapshot;
use super::server::serve;
use super::server::Source;
use super::*;
use crate::System;

/// A server on some port, until it is dropped.
struct Server {
    address: SocketAddr,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Server {
    fn new(source: Source) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let stopped = async {
            let _ = stopped.await;
        };
        Self {
            address,
            stop: Some(stop),
            thread: Some(thread::spawn(move || {
                serve(listener, source, stopped).unwrap()
            })),
        }
    }

    fn ask(&self, request: &str) -> String {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        // A server that refuses a request may close the connection before all of it is written.
        let _ = stream.write_all(request.as_bytes());
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8(answer).unwrap()
    }

    fn get(&self, path: &str, headers: &str) -> String {
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: x\r\n{headers}\r\n"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.stop.take().unwrap().send(());
        self.thread.take().unwrap().join().unwrap();
    }
}

const TEXT: &str = "# HELP rnbd_x_reads Reads\n# TYPE rnbd_x_reads counter\n\
         rnbd_x_reads_total{a=\"b\"} 5\n\
                    # HELP rnbd_y Y\n# TYPE rnbd_y gauge\n# UNIT rnbd_y bytes\nrnbd_y 1\n# EOF\n";

#[test]
fn the_older_format() {
    assert_eq!(
        text::from_openmetrics(TEXT),
        "# HELP rnbd_x_reads_total Reads\n# TYPE rnbd_x_reads_total counter\n\
         rnbd_x_reads_total{a=\"b\"} 5\n\
         # HELP rnbd_y Y\n# TYPE rnbd_y gauge\nrnbd_y 1\n"
    );
}

#[test]
fn requests_and_answers() {
    let server = Server::new(Arc::new(|| Ok(TEXT.to_owned())));
    let answer = server.get("/metrics", "");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(
        answer.contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"),
        "{answer}"
    );
    assert!(
        answer.contains("rnbd_x_reads_total{a=\"b\"} 5\n") && !answer.contains("# EOF"),
        "{answer}"
    );
    let answer = server.get(
        "/metrics?x=y",
        "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n",
    );
    assert!(
        answer.contains("content-type: application/openmetrics-text")
            && answer.ends_with("# EOF\n"),
        "{answer}"
    );
    let answer = server.ask("HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(
        answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\n"),
        "{answer}"
    );
    assert!(server.get("/", "").contains("href=\"/metrics\""));
    assert!(server.get("/etc/passwd", "").starts_with("HTTP/1.1 404 "));
    assert!(server.get("/metrics/../x", "").starts_with("HTTP/1.1 404 "));
}

#[test]
fn bad_requests() {
    let server = Server::new(Arc::new(|| Ok(TEXT.to_owned())));
    let answer = server.ask("POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello");
    assert!(
        answer.starts_with("HTTP/1.1 405 ") && answer.contains("allow: GET, HEAD\r\n"),
        "{answer}"
    );
    let many = "X: y\r\n".repeat(200);
    let long = format!("X: {}\r\n", "y".repeat(100_000));
    for (request, what) in [
        ("nonsense\r\n\r\n".to_owned(), "nonsense"),
        ("\0\u{7f}\r\n\r\n".to_owned(), "bytes"),
        (
            format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(100_000)),
            "a long path",
        ),
        (
            format!("GET /metrics HTTP/1.1\r\nHost: x\r\n{many}\r\n"),
            "many headers",
        ),
        (
            format!("GET /metrics HTTP/1.1\r\nHost: x\r\n{long}\r\n"),
            "a long header",
        ),
        (
            "GET /metrics HTTP/9.9\r\n\r\n".to_owned(),
            "another version",
        ),
    ] {
        let answer = server.ask(&request);
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 4"),
            "{what}: {answer}"
        );
    }
    // The server still answers.
    assert!(server.get("/metrics", "").starts_with("HTTP/1.1 200 "));
}

#[test]
fn connections_that_say_nothing_do_not_keep_others_away() {
    let server = Server::new(Arc::new(|| Ok(TEXT.to_owned())));
    let idle: Vec<_> = (0..31)
        .map(|_| TcpStream::connect(server.address).unwrap())
        .collect();
    assert!(server.get("/metrics", "").starts_with("HTTP/1.1 200 "));
    drop(idle);
}

#[test]
fn what_cannot_be_read_is_an_error() {
    let server = Server::new(Arc::new(|| Err("no such thing".to_owned())));
    let answer = server.get("/metrics", "");
    assert!(
        answer.starts_with("HTTP/1.1 500 ") && answer.ends_with("no such thing\n"),
        "{answer}"
    );
}

#[test]
fn a_kernel_that_does_not_answer_blocks_one_thread_only() {
    let (release, released) = mpsc::channel::<()>();
    let (released, calls) = (Mutex::new(released), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&calls);
    let server = Server::new(Arc::new(move || {
        counted.fetch_add(1, Ordering::SeqCst);
        let _ = released.lock().unwrap().recv();
        Ok(TEXT.to_owned())
    }));
    thread::scope(|scope| {
        let answers: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| server.get("/metrics", "")))
            .collect();
        for answer in answers {
            let answer = answer.join().unwrap();
            assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
        }
    });
    assert_eq!(calls.load(Ordering::SeqCst), 1);
    drop(release);
    assert!(server.get("/metrics", "").starts_with("HTTP/1.1 200 "));
}

/// A machine with one object of each kind, as files.
fn tree() -> tempfile::TempDir {
    let tree = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let file = tree.path().join(name);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    };
    write("sys/class/rnbd-client/ctl/map_device", "");
    let disk = "sys/block/rnbd0";
    write(
        &format!("{disk}/stat"),
        "10 0 80 1500 20 1 160 250 3 9000 12 4 0 32 1 6 2\n",
    );
    write(&format!("{disk}/size"), "2048\n");
    for (name, text) in [
        ("state", "open"),
        ("session", "s"),
        ("mapping_path", "disk \"one\"\\"),
        ("access_mode", "rw"),
        ("nr_poll_queues", "0"),
        ("io_timeouts", "3"),
        ("io_unanswered", "2"),
        ("closed_by", ""),
    ] {
        write(&format!("{disk}/rnbd/{name}"), &format!("{text}\n"));
    }
    for (class, rdma) in [
        ("rtrs-client", "5 4096 6 8192 7 8"),
        ("rtrs-server", "1 2 3 4"),
    ] {
        let session = format!("sys/class/{class}/s");
        let path = format!("{session}/paths/ip:10.0.0.1@ip:10.0.0.2");
        for (name, text) in [
            (format!("{session}/mpath_policy"), "min-inflight (MI: 1)"),
            (format!("{session}/memory_bytes"), "65536"),
            (format!("{path}/state"), "connected"),
            (format!("{path}/hca_name"), "rxe0"),
            (format!("{path}/hca_port"), "1"),
            (format!("{path}/src_addr"), "ip:10.0.0.1"),
            (format!("{path}/dst_addr"), "ip:10.0.0.2"),
            (format!("{path}/cur_latency"), "12000 ns"),
            (format!("{path}/stats/rdma"), rdma),
            (format!("{path}/stats/reconnects"), "-1 2"),
        ] {
            write(&name, &format!("{text}\n"));
        }
    }
    write("sys/class/rtrs-client/s/drain", "off\n");
    let disk = "sys/class/rnbd-server/ctl/devices/vdb";
    write(&format!("{disk}/sessions/s/mapping_path"), "/dev/vdb\n");
    write(&format!("{disk}/sessions/s/access_mode"), "rw\n");
    write(
        &format!("{disk}/reservations"),
        "generation 3\ntype write-exclusive\nholder 0x2 session t\nwaiting for session s\n\
         0x2 session t\n",
    );
    write("sys/class/rnbd-server/ctl/drain", "598 2 1\n");
    clients(&write);
    mirror(&write);
    tree
}

/// Writes the files of a mirror that runs, and copies to a leg.
fn mirror(write: &dyn Fn(&str, &str)) {
    let leg = |session: &str| {
        format!(
            "{{\"disk\": \"vg/db\", \"session\": \"{session}\", \"write_mostly\": false, \
             \"failfast\": true, \"in_sync\": true, \"fill\": false, \"since\": 5}}"
        )
    };
    let record = format!(
        "{{\"version\": 1, \"name\": \"db\", \"uuid\": \"{}\", \"reserve\": true, \
         \"legs\": [{}, {}], \"stopped\": null}}",
        "ab".repeat(16),
        leg("near"),
        leg("far")
    );
    write("var/lib/rnbd/mirrors/db.json", &record);
    for (name, text) in [
        ("size", "2048"),
        ("md/uuid", "abababab-abab-abab-abab-abababababab"),
        ("md/array_state", "clean"),
        ("md/sync_action", "recover"),
        ("md/sync_completed", "100 / 1000"),
        ("md/sync_speed", "5"),
        ("md/dev-rnbd1/state", "in_sync,failfast"),
        ("md/dev-rnbd2/state", "spare"),
    ] {
        write(&format!("sys/block/md127/{name}"), &format!("{text}\n"));
    }
}

/// The files of the transport's server about its clients.
fn clients(write: &dyn Fn(&str, &str)) {
    let module = "sys/module/rtrs_server";
    for (name, text) in [
        ("clients/sessions", "1"),
        ("clients/paths", "2"),
        ("clients/connections", "6"),
        ("clients/half_open", "3"),
        ("clients/refused", "7"),
        ("clients/given_up", "8"),
        ("clients/auth_failed", "9"),
        ("clients/ip:10.0.0.1/sessions", "1"),
        ("clients/ip:10.0.0.1/paths", "1"),
        ("clients/ip:10.0.0.1/connections", "3"),
        ("clients/ip:10.0.0.1/half_open", "0"),
        ("parameters/max_sessions", "4096"),
        ("parameters/max_half_open_per_client", "64"),
        // No limit.
        ("parameters/max_paths", "0"),
        ("chunk_pool/total_bytes", "1048576"),
        ("chunk_pool/free_bytes", "65536"),
    ] {
        write(&format!("{module}/{name}"), &format!("{text}\n"));
    }
}

fn all_metrics() -> String {
    let tree = tree();
    let system = System::new(Some(tree.path()), None);
    render(Snapshot::take(&system).unwrap()).unwrap()
}

#[test]
fn all_values() {
    let text = text::from_openmetrics(&all_metrics());
    let lines: Vec<_> = text
        .lines()
        .filter(|line| !line.starts_with('#') && !line.contains("_exporter_"))
        .collect();
    insta::assert_snapshot!(lines.join("\n"));
}

/// The names of all metrics, as in queries.
pub(crate) fn metric_names() -> Vec<String> {
    let text = text::from_openmetrics(&all_metrics());
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    types
        .map(|line| line.split(' ').next().unwrap().to_owned())
        .collect()
}

#[test]
fn names_follow_the_rules() {
    let text = text::from_openmetrics(&all_metrics());
    let comments = |keyword: &str| {
        text.lines()
            .filter(|line| line.starts_with(&format!("# {keyword} ")))
            .count()
    };
    assert_eq!(comments("HELP"), comments("TYPE"));
    for line in text.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = line.split_once(' ').unwrap();
        assert!(name.starts_with("rnbd_"), "{name}");
        assert_eq!(name.ends_with("_total"), kind == "counter", "{name} {kind}");
        for unit in ["_ms", "_ns", "_kb", "_milliseconds", "_percent"] {
            assert!(!name.contains(unit), "{name} is not in base units");
        }
    }
    let mut names = metric_names();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), metric_names().len(), "a name is used twice");
}

#[test]
fn a_machine_without_the_modules() {
    let tree = tempfile::tempdir().unwrap();
    let system = System::new(Some(tree.path()), None);
    let text = render(Snapshot::take(&system).unwrap()).unwrap();
    assert!(
        text.contains("rnbd_module_loaded{module=\"rnbd_client\"} 0\n"),
        "{text}"
    );
    assert!(!text.contains("rnbd_device"), "{text}");
}

/// The queries of a dashboard, with the names of their panels.
fn queries(value: &serde_json::Value, title: &str, found: &mut Vec<(String, String)>) {
    match value {
        serde_json::Value::Object(map) => {
            let title = map
                .get("title")
                .or(map.get("name"))
                .and_then(|title| title.as_str())
                .unwrap_or(title);
            for (key, value) in map {
                match value.as_str() {
                    Some(text) if key == "expr" || key == "query" => {
                        found.push((title.to_owned(), text.to_owned()))
                    }
                    _ => queries(value, title, found),
                }
            }
        }
        serde_json::Value::Array(list) => {
            list.iter().for_each(|value| queries(value, title, found))
        }
        _ => (),
    }
}

#[test]
fn the_dashboard_asks_for_metrics_that_exist() {
    let text = include_str!("../../grafana/rnbd.json");
    let dashboard: serde_json::Value = serde_json::from_str(text).unwrap();
    let mut found = Vec::new();
    queries(&dashboard, "", &mut found);
    let known = metric_names();
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut used = Vec::new();
    for (title, query) in &found {
        for name in query
            .split(|c| !is_part(c))
            .filter(|word| word.starts_with("rnbd_"))
        {
            assert!(
                known.iter().any(|have| have == name),
                "{title}: there is no metric {name}"
            );
            used.push(name.to_owned());
        }
        // A counter is only useful with a rate; a gauge has no rate.
        let is_rate = query.contains("rate(") || query.contains("increase(");
        assert_eq!(query.contains("_total{"), is_rate, "{title}: {query}");
    }
    assert!(found.len() > 20, "only {} queries were found", found.len());
    let labels = ["instance", "session", "device"];
    for name in labels {
        assert!(
            text.contains(&format!("\"name\": \"{name}\"")),
            "no variable {name}"
        );
    }
    let ids: Vec<_> = dashboard["panels"]
        .as_array()
        .unwrap()
        .iter()
        .map(|panel| panel["id"].as_u64().unwrap())
        .collect();
    assert_eq!(ids, (1..=ids.len() as u64).collect::<Vec<_>>());
}

#[test]
fn the_document_has_every_metric() {
    let text = include_str!("../../../../Documentation/monitoring.md");
    let metrics = text::from_openmetrics(&all_metrics());
    let mut rows: Vec<_> = text
        .lines()
        .filter(|line| line.starts_with("| `rnbd_"))
        .map(|line| {
            let cells: Vec<_> = line.split('|').map(str::trim).collect();
            (
                cells[1].trim_matches('`').to_owned(),
                cells[2].to_owned(),
                cells[3].to_owned(),
            )
        })
        .collect();
    rows.sort();
    let mut known: Vec<_> = metrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '))
        .map(|(name, kind)| {
            let is_value =
                |line: &&str| line.starts_with(name) && line[name.len()..].starts_with([' ', '{']);
            let value = metrics.lines().find(is_value).unwrap();
            // The values of this machine have no comma or equals sign in them.
            let labels = value
                .split_once('{')
                .map_or("", |(_, rest)| rest.rsplit_once('}').unwrap().0);
            let names: Vec<_> = labels
                .split(',')
                .filter_map(|label| Some(label.split_once('=')?.0))
                .collect();
            (name.to_owned(), kind.to_owned(), names.join(", "))
        })
        .collect();
    known.sort();
    assert_eq!(rows, known);
    // The metrics in the rules and examples exist.
    for word in text
        .split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| word.starts_with("rnbd_"))
    {
        let is_metric = known.iter().any(|(name, ..)| name == word);
        assert!(
            is_metric || ["rnbd_client", "rnbd_server"].contains(&word),
            "there is no {word}"
        );
    }
}
