//! The ledger's doors, and its checkpoints.

use exeat_core::ledger::{Checkpoint, Flaw, PublicKey, verify_export};
use exeat_core::ports::Store as _;
use exeat_core::time::Span;
use exeat_server::checkpoints::{Signed, When};
use serde_json::json;

use crate::admin_rig::{Rig, get, put};

async fn with_records(n: u64) -> Rig {
    let rig = Rig::single().await;
    for i in 0..n {
        let body = json!({ "limit_microusd": i });
        rig.admin(put("/api/v1/budgets/org", &body)).await.is(200);
    }
    rig
}

#[tokio::test]
async fn an_export_verifies_without_us_whole_and_in_part() {
    let rig = with_records(7).await;
    let pem = rig.admin(get("/api/v1/ledger/key")).await.text();
    let key = PublicKey::from_pem(&pem).unwrap();
    for (from, records) in [("", 7), ("?from=1", 7), ("?from=4", 4), ("?from=8", 0)] {
        let export = rig.admin(get(&format!("/api/v1/ledger/export{from}"))).await;
        assert_eq!(export.status, 200);
        let found = verify_export(export.bytes.as_slice(), &key, None).unwrap();
        assert!(found.verified, "{from}: {found:?}");
        assert_eq!(found.records, records);
        assert_eq!(found.checkpoint.as_ref().map(|c| c.size), Some(7));
    }
    rig.admin(get("/api/v1/ledger/export?from=99")).await.problem(422, "invalid");
    let export = rig.admin(get("/api/v1/ledger/export")).await.text();
    let last = export.lines().last().unwrap();
    let cut = export.strip_suffix(&format!("{last}\n")).unwrap();
    let found = verify_export(cut.as_bytes(), &key, None).unwrap();
    assert_eq!(found.first_bad.map(|b| b.why), Some(Flaw::NoCheckpoint));
}

#[tokio::test]
async fn the_whole_chain_is_verified_against_the_newest_checkpoint() {
    let rig = with_records(4).await;
    let first = rig.admin(get("/api/v1/ledger/verify")).await.is(200);
    assert_eq!((&first["verified"], &first["records"]), (&json!(true), &json!(4)));
    assert!(first["checkpoint"].is_null() && first["first_bad"].is_null());
    let mut signed = Signed::load(&rig.app).await;
    assert_eq!(signed.sign(&rig.app, When::Changed).await.unwrap(), Some(4));
    let found = rig.admin(get("/api/v1/ledger/verify")).await.is(200);
    assert_eq!((&found["verified"], &found["checkpoint"]["size"]), (&json!(true), &json!(4)));
    // A checkpoint of a chain that was longer: the tail was cut since.
    let now = rig.store.now().await.unwrap();
    let head = exeat_core::ledger::Head { size: 9, hash: [1; 32] };
    let note = rig.app.ledger_key.sign(&Checkpoint::of(rig.org.clone(), head, now));
    rig.app.archive.keep_checkpoint(&rig.org, 9, &note).await.unwrap();
    let found = rig.admin(get("/api/v1/ledger/verify")).await.is(200);
    assert_eq!(found["verified"], false);
    assert_eq!(found["first_bad"], json!({ "seq": 5, "why": "cut_tail" }));
    rig.app.archive.keep_checkpoint(&rig.org, 10, "nonsense").await.unwrap();
    let found = rig.admin(get("/api/v1/ledger/verify")).await.is(200);
    assert_eq!((&found["verified"], &found["first_bad"]["why"]), (&json!(false), &json!("no_checkpoint")));
}

#[tokio::test]
async fn records_are_listed_by_place_kind_and_page() {
    let rig = with_records(5).await;
    let page = rig.admin(get("/api/v1/ledger?limit=2&from=2")).await.is(200);
    let seqs = |page: &serde_json::Value| -> Vec<u64> {
        page["items"].as_array().unwrap().iter().map(|r| r["seq"].as_u64().unwrap()).collect()
    };
    assert_eq!(seqs(&page), [2, 3]);
    let cursor = page["next_cursor"].as_str().unwrap();
    let next = rig.admin(get(&format!("/api/v1/ledger?limit=2&cursor={cursor}"))).await.is(200);
    assert_eq!(seqs(&next), [4, 5]);
    assert!(rig.admin(get("/api/v1/ledger?kind=edge")).await.is(200)["items"].as_array().unwrap().is_empty());
    assert_eq!(seqs(&rig.admin(get("/api/v1/ledger?kind=change")).await.is(200)).len(), 5);
    let task = "0197f3a0-0000-7000-8000-000000000001";
    assert!(seqs(&rig.admin(get(&format!("/api/v1/ledger?task={task}"))).await.is(200)).is_empty());
    rig.admin(get("/api/v1/ledger?kind=weather")).await.problem(422, "invalid");
    rig.admin(get("/api/v1/ledger?cursor=eA")).await.problem(400, "bad_cursor");
    let all = rig.admin(get("/api/v1/ledger?limit=200")).await;
    assert!(all.text().contains("\"v\":1"));
}

#[tokio::test]
async fn a_checkpoint_is_signed_after_so_many_records_or_so_long_and_lies_outside_too() {
    let rig = with_records(2).await;
    let mut signed = Signed::load(&rig.app).await;
    assert_eq!(signed.sign(&rig.app, When::Due).await.unwrap(), None, "two records, no time");
    rig.clock.pass(Span::of_secs(60));
    assert_eq!(signed.sign(&rig.app, When::Due).await.unwrap(), Some(2), "a minute");
    rig.clock.pass(Span::of_secs(600));
    assert_eq!(signed.sign(&rig.app, When::Due).await.unwrap(), None, "nothing new");
    for i in 10..13 {
        rig.admin(put("/api/v1/budgets/org", &json!({ "limit_microusd": i }))).await.is(200);
    }
    let mut signed = Signed::load(&rig.app).await;
    assert_eq!(signed.sign(&rig.app, When::Due).await.unwrap(), Some(5), "three records");
    let file = std::fs::read_to_string(rig.checkpoint_file()).unwrap();
    let key = rig.app.ledger_key.public();
    let kept = rig.app.archive.checkpoint(&rig.org).await.unwrap().unwrap();
    let last = Checkpoint::open(&kept, &key).unwrap();
    assert_eq!(last.size, 5);
    assert!(file.ends_with(&format!("{kept}\n")), "{file}");
    assert_eq!(file.matches("exeat/main\n").count(), 2);
}

#[tokio::test]
async fn no_checkpoint_is_kept_that_the_file_has_not() {
    let rig = with_records(3).await;
    std::fs::create_dir(rig.checkpoint_file()).unwrap();
    let mut signed = Signed::load(&rig.app).await;
    assert!(signed.sign(&rig.app, When::Due).await.is_err());
    assert_eq!(rig.app.archive.checkpoint(&rig.org).await.unwrap(), None);
    std::fs::remove_dir(rig.checkpoint_file()).unwrap();
    assert_eq!(signed.sign(&rig.app, When::Due).await.unwrap(), Some(3));
}
