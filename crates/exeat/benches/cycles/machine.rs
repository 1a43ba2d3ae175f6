//! What the machine does without us.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::Duration;

use exeat_store::sqlite::limit::{Load, pragmas, rows_per_second};
use serde_json::{Value, json};

use crate::runs::{clock, quantile};

pub(crate) fn described() -> Value {
    let cpu = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|l| l.strip_prefix("model name")).unwrap_or_default();
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let sync = synced_writes();
    json!({
        "cpu": model.trim_matches([' ', '\t', ':']), "cores": cores, "version": env!("CARGO_PKG_VERSION"),
        "fsync_ms_p50": quantile(&sync, 0.5), "fsync_ms_p95": quantile(&sync, 0.95),
    })
}

/// How long 4 KiB take to be written and synced, in milliseconds.
fn synced_writes() -> Vec<f64> {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let open = OpenOptions::new().create(true).truncate(true).write(true).open(folder.path().join("f"));
    let mut file = open.unwrap();
    file.write_all(&[0; 1 << 20]).unwrap();
    let mut took = Vec::new();
    let began = clock();
    while began.elapsed() < Duration::from_secs(2) {
        let one = clock();
        file.write_all_at(&[1; 4_096], 4_096 * (took.len() as u64 % 256)).unwrap();
        file.sync_data().unwrap();
        took.push(one.elapsed().as_secs_f64() * 1_000.0);
    }
    took
}

/// What the database does alone with the rows that the best run wrote.
pub(crate) fn limit(best: &Value, folder: &Path, span: Duration) -> Value {
    let number = |m: &str| best[m].as_f64().unwrap();
    let per_commit = (number("rows_per_cycle") * number("cycles_per_commit")).max(1.0).round();
    let bytes = (number("bytes_per_cycle") / number("rows_per_cycle")).round();
    let load = Load { rows: per_commit as u32, bytes: bytes as usize, span };
    let file = folder.join("baseline.db");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let rows = runtime.block_on(rows_per_second(&file, load)).unwrap();
    let told: serde_json::Map<String, Value> = runtime
        .block_on(pragmas(&file))
        .unwrap()
        .into_iter()
        .map(|(k, v)| (k.to_owned(), json!(v)))
        .collect();
    let cycles = rows / number("rows_per_cycle");
    json!({
        "rows_per_s": rows, "bytes_per_row": load.bytes, "rows_per_commit": load.rows, "cycles_per_s": cycles,
        "reached_percent": number("per_s") / cycles * 100.0, "pragmas": told,
    })
}
