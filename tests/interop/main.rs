//! This crate ("we", "ours") and real Redisson ("Java", "theirs") at the same servers: the two *sides*. Each test body
//! below runs with each tested version of Redisson.

use std::time::Duration;

mod cluster;
mod counter;
mod counters_model;
mod expiry;
mod failover;
mod fair_expiry;
mod fair_grants;
mod fair_kills;
mod fair_names;
mod fair_order;
mod fair_place;
mod fair_quirks;
mod fair_rig;
mod fair_share;
mod fair_state;
mod fenced;
mod fenced_quirks;
mod fleet;
mod fleet_parts;
mod fleet_processes;
mod fleet_shares;
mod force;
mod group_kills;
mod held;
mod latch;
mod lead;
mod listener;
mod multi;
mod names;
mod nonreentrant;
mod owners;
mod permits;
mod red;
mod reentry;
mod revoke;
mod rig;
mod rw_kills;
mod rw_names;
mod rw_prefer;
mod rw_quirks;
mod rw_rig;
mod rw_share;
mod rw_state;
mod rw_wake;
mod rw_watchdog;
mod semaphore;
mod sentinel;
mod several;
mod sides;
mod spin;
mod unlike;
mod waits;
mod wake;

/// Makes a test of each of these bodies with this version of Redisson.
macro_rules! beside {
    ($versioned:ident, $version:literal: $($module:ident::$body:ident),* $(,)?) => {
        mod $versioned {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $body() {
                crate::in_time(stringify!($body), crate::$module::$body($version)).await;
            })*
        }
    };
}

beside!(redisson_4_7_0, "4.7.0":
    expiry::expired_lease_admits_the_other_side,
    reentry::reentrant_and_spin_state_after_each_step_matches_redisson,
    unlike::inner_shorter_lease_does_not_shorten_the_outer_lease, unlike::outer_hold_is_renewed_after_inner_release,
    unlike::expired_lease_does_not_apply_to_next_hold,
    force::force_unlock_admits_the_waiter_and_ends_the_hold,
    names::odd_names_exclude_and_wake_the_other_side,
    counter::counter_is_exact_with_clients_of_both_languages,
    owners::java_hold_is_released_by_our_client, owners::java_hold_is_re_entered_by_our_client,
    waits::wait_for_other_side_times_out, waits::our_waiter_polls_behind_a_lock_without_lease,
    wake::waiter_is_woken_only_by_the_message,
    fair_order::fair_waiters_are_served_in_order_of_arrival,
    fair_state::fair_state_after_each_step_matches_redisson, fair_state::fair_java_deadlines_depend_on_our_waiter_ahead,
    fair_kills::fair_live_waiters_are_served_in_order_past_killed_ones,
    fair_grants::fair_java_head_is_notified_and_not_granted,
    fair_place::fair_our_waiter_keeps_its_entry_behind_java, fair_place::fair_java_waiter_keeps_its_entry_behind_ours,
    fair_share::fair_java_is_not_starved_by_our_waiters,
    fair_quirks::fair_dead_head_is_removed_when_our_client_waits, fair_quirks::fair_waiter_behind_head_that_gives_up_is_served,
    fair_quirks::fair_our_waiters_keep_entries_during_long_waits, fair_quirks::fair_waiter_with_negative_remaining_time_is_served,
    fair_expiry::fair_waiter_acquires_when_lease_of_other_side_expires,
    fair_names::fair_odd_names_use_the_same_queue_in_both_languages,
    rw_state::rw_state_after_each_step_matches_redisson,
    rw_names::rw_odd_names_exclude_and_wake_the_other_side,
    rw_wake::rw_waiting_readers_acquire_together, rw_wake::rw_our_downgrade_admits_java_readers,
    rw_wake::rw_java_downgrade_is_noticed_only_by_our_readers,
    rw_watchdog::rw_watchdogs_of_both_sides_keep_their_holds, rw_watchdog::rw_remaining_half_is_renewed_after_release_of_the_other,
    rw_quirks::rw_long_read_leases_outlive_javas_watchdog, rw_quirks::rw_leased_read_keeps_its_lease_after_a_downgrade,
    rw_quirks::rw_our_writer_acquires_after_dead_readers_cover_expires, rw_kills::rw_dead_readers_do_not_exclude_writers,
    rw_quirks::rw_forced_holds_do_not_stop_renewal_of_later_holds, rw_quirks::rw_reader_without_cover_counts_as_dead,
    rw_share::rw_java_writer_is_not_starved_by_our_writers,
    rw_prefer::rw_only_our_readers_are_held_back, rw_prefer::rw_preferred_writers_starve_no_task,
    red::red_state_after_each_step_matches_redisson, red::red_locks_exclude_each_other, red::red_counter_of_both_languages_is_exact,
    multi::multi_state_after_each_step_matches_redisson, multi::multi_counter_is_exact_with_reversed_lists,
    multi::multi_acquire_holds_all_members_or_none, multi::multi_release_continues_after_a_failed_member,
    multi::multi_lease_is_set_as_requested, multi::multi_read_member_has_the_same_lease_on_hash_and_cover,
    multi::multi_fair_member_sets_no_ttl_on_the_queue,
    fenced::fenced_state_after_each_step_matches_redisson,
    fenced_quirks::fenced_acquire_uses_the_requested_lease_and_wait, fenced_quirks::fenced_refusal_returns_no_token,
    fenced_quirks::fenced_counter_survives_java_force_and_other_flavours,
    fenced_quirks::fenced_acquire_removes_the_ttl_of_javas_multi_lock,
    lead::lead_java_takes_part_as_a_plain_contender,
    revoke::revoke_asks_our_holder_and_no_java_holder,
    spin::spin_release_wakes_no_reentrant_waiter,
    nonreentrant::nonreentrant_states_are_the_same, nonreentrant::nonreentrant_locks_exclude_each_other,
    permits::permits_state_after_each_step_matches_redisson,
    permits::permits_ids_of_each_side_are_extended_and_released_by_the_other,
    permits::permits_bulk_release_with_an_expired_id_releases_nothing,
    semaphore::permit_waiters_are_served_by_releases_and_additions_of_the_other_side,
    semaphore::permit_waiters_are_served_when_a_lease_of_the_other_side_ends,
    semaphore::permit_counter_is_exact_with_clients_of_both_languages,
    semaphore::semaphore_state_after_each_step_matches_redisson, semaphore::semaphore_waiters_are_served_by_the_other_side,
    semaphore::semaphore_counter_is_exact_with_clients_of_both_languages,
    latch::latch_state_after_each_step_matches_redisson,
    latch::latch_waiters_of_both_sides_go_on_whichever_side_counts_down_last,
    latch::latch_deleted_by_us_ends_the_waits_of_both_sides, latch::latch_deleted_by_java_ends_only_our_waits,
    counters_model::permits_match_the_model_after_each_step, counters_model::semaphore_matches_the_model_after_each_step,
    counters_model::latch_matches_the_model_after_each_step,
    group_kills::our_waiters_acquire_after_java_holders_are_killed, group_kills::java_waiters_acquire_after_our_holders_are_killed,
    fleet::fleet_of_reentrant_locks_keeps_exclusion_after_kills, fleet::fleet_of_fair_locks_keeps_exclusion_after_kills,
    fleet::fleet_of_read_write_locks_keeps_exclusion_after_kills, fleet::fleet_of_fenced_locks_keeps_exclusion_after_kills,
    fleet::fleet_of_spin_locks_keeps_exclusion_after_kills, fleet::fleet_of_multi_locks_keeps_exclusion_after_kills,
    fleet_shares::fleet_at_one_reentrant_lock_starves_neither_language,
    fleet_shares::fleet_at_one_write_lock_starves_neither_language, fleet_shares::fleet_at_one_spin_lock_starves_neither_language,
    cluster::cluster_locks_exclude_and_wake_the_other_side, cluster::cluster_failover_admits_no_second_holder,
    cluster::cluster_slot_move_admits_no_second_holder,
    sentinel::sentinel_java_locks_are_acknowledged_by_replicas, sentinel::sentinel_locks_exclude_and_wake_the_other_side,
    sentinel::sentinel_failover_admits_no_second_holder, sentinel::replicated_locks_exclude_and_wake_the_other_side,
    sentinel::replicated_failover_admits_no_second_holder,
);

beside!(redisson_3_52_0, "3.52.0":
    expiry::expired_lease_admits_the_other_side,
    reentry::reentrant_and_spin_state_after_each_step_matches_redisson,
    force::force_unlock_admits_the_waiter_and_ends_the_hold,
    names::odd_names_exclude_and_wake_the_other_side,
    counter::counter_is_exact_with_clients_of_both_languages,
    fair_order::fair_waiters_are_served_in_order_of_arrival,
    fair_state::fair_state_after_each_step_matches_redisson,
    fair_names::fair_odd_names_use_the_same_queue_in_both_languages,
    fair_kills::fair_live_waiters_are_served_in_order_past_killed_ones,
    fair_grants::fair_java_head_is_notified_and_not_granted,
    rw_state::rw_state_after_each_step_matches_redisson,
    rw_names::rw_odd_names_exclude_and_wake_the_other_side,
    rw_wake::rw_waiting_readers_acquire_together,
    rw_quirks::rw_old_redisson_loses_only_its_own_holds,
    red::red_state_after_each_step_matches_redisson, red::red_locks_exclude_each_other,
    multi::multi_state_after_each_step_matches_redisson,
    fenced::fenced_state_after_each_step_matches_redisson,
    lead::lead_java_takes_part_as_a_plain_contender,
    revoke::revoke_asks_our_holder_and_no_java_holder,
    permits::permits_state_after_each_step_matches_redisson,
    permits::permits_ids_of_each_side_are_extended_and_released_by_the_other,
    permits::permits_bulk_release_with_an_expired_id_releases_nothing,
    semaphore::permit_waiters_are_served_by_releases_and_additions_of_the_other_side,
    semaphore::permit_waiters_are_served_when_a_lease_of_the_other_side_ends,
    semaphore::permit_counter_is_exact_with_clients_of_both_languages,
    semaphore::semaphore_state_after_each_step_matches_redisson, semaphore::semaphore_waiters_are_served_by_the_other_side,
    semaphore::semaphore_counter_is_exact_with_clients_of_both_languages,
    latch::latch_state_after_each_step_matches_redisson,
    latch::latch_waiters_of_both_sides_go_on_whichever_side_counts_down_last,
    latch::latch_deleted_by_us_ends_the_waits_of_both_sides, latch::latch_deleted_by_java_ends_only_our_waits,
    counters_model::permits_match_the_model_after_each_step, counters_model::semaphore_matches_the_model_after_each_step,
    counters_model::latch_matches_the_model_after_each_step,
    cluster::cluster_locks_exclude_and_wake_the_other_side, cluster::cluster_failover_admits_no_second_holder,
    cluster::cluster_slot_move_admits_no_second_holder,
    sentinel::sentinel_java_locks_are_acknowledged_by_replicas, sentinel::sentinel_locks_exclude_and_wake_the_other_side,
    sentinel::sentinel_failover_admits_no_second_holder, sentinel::replicated_locks_exclude_and_wake_the_other_side,
    sentinel::replicated_failover_admits_no_second_holder,
);

/// Time limit of a test. It leaves time to wait for several events on a busy machine.
const LIMIT: Duration = Duration::from_secs(540);

async fn in_time(name: &str, body: impl Future<Output = ()>) {
    if tokio::time::timeout(LIMIT, body).await.is_err() {
        panic!("{name} has not ended within {LIMIT:?}: it hangs in a wait that has no limit of its own");
    }
}
