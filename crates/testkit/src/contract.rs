//! The contract of a store: every promise of the ports, as a check of its own name.
//!
//! An implementation says how it is opened ([`Bench`]) and has all of them run by
//! [`store_contract!`](crate::store_contract). A check knows nothing of what is behind the ports.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a check that doesn't hold is meant to panic"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use async_trait::async_trait;
use exeat_core::id::OrgName;
use exeat_core::ports::{Archive, Clock, Store};
use exeat_core::registry::{Bounds, EgressMode, OrgDefaults};
use exeat_core::time::{Monotonic, Span, Timestamp};

pub mod answers;
pub mod commits;
pub mod fixtures;
pub mod sweeps;

/// A store with both of its ports.
pub trait Record: Store + Archive {}

impl<T: Store + Archive> Record for T {}

/// A clock that stands until a check moves it, in either direction.
#[derive(Debug)]
pub struct HandClock {
    wall: AtomicI64,
    passed: AtomicU64,
}

impl HandClock {
    /// Stands at a time in 2027.
    #[must_use]
    pub const fn new() -> Self {
        Self { wall: AtomicI64::new(1_800_000_000_000_000), passed: AtomicU64::new(0) }
    }
    /// Sets the wall clock; no time has passed by that.
    pub fn set(&self, to: Timestamp) {
        self.wall.store(to.micros(), Ordering::SeqCst);
    }
    /// Time passes.
    pub fn pass(&self, span: Span) {
        self.passed.fetch_add(span.micros(), Ordering::SeqCst);
        self.set(self.now() + span);
    }
}

impl Default for HandClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for HandClock {
    fn now(&self) -> Timestamp {
        Timestamp::of_micros(self.wall.load(Ordering::SeqCst))
    }
    fn monotonic(&self) -> Monotonic {
        Monotonic(self.passed.load(Ordering::SeqCst))
    }
}

/// How an implementation is put on the bench.
#[async_trait]
pub trait Bench: Sized + Send + Sync {
    /// An empty record of [`org`], reading this clock, with [`defaults`].
    async fn open(clock: Arc<HandClock>) -> Self;
    /// The record as it is open now.
    fn record(&self) -> Arc<dyn Record>;
    /// Closes the record and opens it again. `false`: it doesn't outlive its process, nothing was done.
    async fn reopen(&mut self) -> bool;
}

/// The org of every check.
#[must_use]
pub fn org() -> OrgName {
    "main".parse().unwrap()
}

/// What configuration says of it.
#[must_use]
pub fn defaults() -> OrgDefaults {
    let levels = exeat_core::label::Levels::default();
    OrgDefaults {
        default_label: levels.parse("internal").unwrap(),
        levels,
        egress_cap: EgressMode::Drain,
        bounds: Arc::new(Bounds::default()),
    }
}

/// One test per promise, for the [`Bench`] named. The calling crate needs `tokio` with its macros.
#[macro_export]
macro_rules! store_contract {
    ($bench:ty) => {
        $crate::store_contract!($bench, commits:
            a_change_set_is_durable_whole,
            a_refused_change_set_leaves_nothing_behind,
            a_version_that_moved_is_a_conflict_for_writes_and_for_expectations,
            of_many_sets_on_one_version_exactly_one_holds,
            a_row_written_twice_in_one_set_is_wrong,
            an_edge_has_one_record_for_ever,
            a_child_of_an_edge_without_a_record_is_wrong,
            a_pushed_event_is_stored_once,
            a_foreign_task_serves_one_hop_of_its_agent,
            parallel_reservations_never_pass_the_limit,
            costs_add_up_on_every_account,
            events_are_numbered_without_gaps_per_task,
            the_chain_verifies_after_many_concurrent_commits,
            leases_come_back_with_the_receipt_and_only_then,
            a_change_is_found_by_its_id_with_and_without_records,
            another_orgs_things_are_not_found,
            after_reopening_everything_is_there
        );
        $crate::store_contract!($bench, sweeps:
            only_due_rows_are_claimed_longest_due_first,
            o_poll_03_what_is_due_of_every_org_is_claimed_as_its_own,
            a_claim_is_exclusive_and_fenced_and_runs_out,
            writing_a_row_clears_its_claim,
            concurrent_sweeps_share_out_the_rows,
            every_kind_of_due_row_leads_to_its_task,
            the_vitals_count_what_is_open_and_know_the_oldest,
            the_next_due_time_looks_past_claims,
            now_never_runs_backwards,
            ready_envelopes_come_oldest_first_by_role_and_team
        );
        $crate::store_contract!($bench, answers:
            a_task_is_loaded_with_all_that_hangs_on_it,
            a_task_is_found_by_any_of_its_parts,
            a_lost_lease_still_finds_its_envelope,
            a_door_shows_its_hop_and_the_foreign_task,
            the_registry_shows_what_governs_and_follows_each_change,
            open_foreign_hops_are_counted,
            an_idempotency_key_tells_what_it_did,
            notes_settings_and_checkpoints_are_kept,
            api_keys_are_found_by_their_public_half,
            workflows_show_their_newest_version,
            each_version_of_the_policy_stays,
            tasks_come_newest_first_in_pages_and_filtered,
            approvals_and_dead_letters_come_in_pages,
            a_dead_letter_is_decided_once,
            events_are_read_after_a_number,
            records_are_read_from_a_place_and_by_task,
            costs_are_summed_by_agent_workflow_task_and_day
        );
    };
    ($bench:ty, $file:ident: $($check:ident),+) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $check() {
            $crate::contract::$file::$check::<$bench>().await;
        }
    )+};
}
