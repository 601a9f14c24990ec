//! This crate and real Redisson on one server, and in a cluster. Each body below runs with each version of Redisson.

use std::time::Duration;

mod cluster;
mod counter;
mod expiry;
mod failover;
mod fair_expiry;
mod fair_grants;
mod fair_kills;
mod fair_mixed;
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
mod listener;
mod mapper;
mod multi;
mod names;
mod nonreentrant;
mod owners;
mod red;
mod reentry;
mod rig;
mod rw_kills;
mod rw_mixed;
mod rw_names;
mod rw_prefer;
mod rw_quirks;
mod rw_rig;
mod rw_share;
mod rw_state;
mod rw_wake;
mod rw_watchdog;
mod sentinel;
mod several;
mod share;
mod sides;
mod spin;
mod unlike;
mod waits;
mod wake;
mod watchdog;

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
    wake::a_release_in_java_wakes_us, wake::our_release_wakes_java, wake::nothing_but_the_message_wakes,
    wake::a_lock_without_end_is_looked_at_again,
    expiry::leases_that_lapse, expiry::the_killed_are_succeeded,
    reentry::states_are_the_same,
    unlike::a_shorter_lease_never_shortens, unlike::the_outer_hold_stays_watched, unlike::a_lapsed_lease_does_not_stick,
    force::our_guard_learns_of_javas_force, force::waiters_enter_after_a_force,
    names::odd_names_exclude_and_wake,
    mapper::prefixes_meet,
    counter::four_and_four,
    owners::a_java_owner_is_released_by_us, owners::a_java_owner_is_joined_by_us, owners::nobody_shares_an_id,
    waits::waits_run_out, waits::waits_are_met,
    share::java_is_not_starved, share::we_are_not_starved,
    watchdog::both_keep_what_they_hold,
    fair_order::fair_turns_are_in_order_of_arrival,
    fair_order::fair_releases_wake_the_other_sides_head,
    fair_state::fair_states_are_the_same, fair_state::fair_deadlines_move_with_us,
    fair_kills::fair_live_waiters_pass_the_dead,
    fair_grants::fair_grants_never_go_to_java, fair_grants::fair_grants_go_to_us, fair_grants::fair_forced_open_in_java,
    fair_place::fair_place_of_ours_is_kept,
    fair_place::fair_place_of_ours_is_kept_behind_a_lock_and_an_async,
    fair_place::fair_place_of_ours_is_kept_under_brief_leases,
    fair_place::fair_place_of_javas_is_kept_behind_ours,
    fair_share::fair_java_gets_its_turn, fair_share::fair_we_get_our_turn,
    fair_quirks::fair_dead_head_is_passed_over, fair_quirks::fair_giver_up_wakes_the_next,
    fair_quirks::fair_long_waits_keep_places, fair_quirks::fair_negative_times_are_bounded,
    fair_expiry::fair_leases_that_lapse, fair_expiry::fair_killed_java_waiter_is_passed_over,
    fair_names::fair_odd_names_queue_up, fair_names::fair_prefixes_meet,
    fair_mixed::fair_rounds_with_cancels_count_exactly,
    rw_state::rw_states_are_the_same,
    rw_names::rw_odd_names_exclude_and_wake, rw_names::rw_prefixes_meet,
    rw_wake::rw_releases_wake_the_other_side, rw_wake::rw_readers_come_in_together,
    rw_wake::rw_downgrades_of_ours_let_readers_in, rw_wake::rw_downgrades_of_javas_are_seen_by_us_alone,
    rw_wake::rw_an_upgrade_never_hangs,
    rw_kills::rw_the_killed_are_succeeded, rw_kills::rw_zombie_readers_keep_nobody_out,
    rw_kills::rw_the_last_live_reader_decides,
    rw_watchdog::rw_both_keep_what_they_hold, rw_watchdog::rw_what_is_left_is_kept,
    rw_quirks::rw_a_nested_read_leaves_the_write_watched, rw_quirks::rw_long_read_leases_outlive_javas_watchdog,
    rw_quirks::rw_a_leased_read_outlives_its_downgrade, rw_quirks::rw_dead_readers_under_a_long_lease,
    rw_quirks::rw_a_lapsed_lease_does_not_stick, rw_quirks::rw_the_outer_hold_stays_watched,
    rw_quirks::rw_forced_holds_delay_no_renewal, rw_quirks::rw_without_a_cover_nobody_reads,
    rw_share::rw_writers_of_ours_let_an_unseen_java_writer_in,
    rw_prefer::rw_only_our_readers_are_held_back, rw_prefer::rw_preferred_writers_disturb_nobody,
    rw_mixed::rw_rounds_never_mix_readers_and_writers,
    red::red_states_are_the_same, red::red_locks_exclude_each_other, red::red_counts_are_exact,
    red::red_releases_wake_the_other_side,
    multi::multi_states_are_the_same, multi::multi_reversed_lists_count_exactly, multi::multi_is_all_or_nothing,
    multi::multi_unlock_goes_on, multi::multi_leases_are_what_was_asked_for, multi::multi_read_members_have_one_lease,
    multi::multi_fair_members_keep_their_queue,
    fenced::fenced_tokens_grow_over_both, fenced::fenced_states_are_the_same,
    fenced::fenced_releases_wake_the_other_side,
    fenced_quirks::fenced_leases_with_tokens, fenced_quirks::fenced_refusals_are_no_tokens,
    fenced_quirks::fenced_counters_are_kept, fenced_quirks::fenced_counters_in_multi_locks,
    spin::spin_states_are_the_same, spin::spin_counts_are_exact, spin::spin_waiters_look_for_themselves,
    spin::spin_releases_wake_nobody,
    nonreentrant::nonreentrant_states_are_the_same, nonreentrant::nonreentrant_locks_exclude_each_other,
    group_kills::killed_java_holders_are_succeeded, group_kills::our_killed_holders_are_succeeded,
    fleet::fleet_of_reentrant_locks, fleet::fleet_of_fair_locks, fleet::fleet_of_read_write_locks,
    fleet::fleet_of_fenced_locks, fleet::fleet_of_spin_locks, fleet::fleet_of_multi_locks,
    fleet_shares::fleet_of_reentrant_neighbours, fleet_shares::fleet_of_write_neighbours,
    fleet_shares::fleet_of_fenced_neighbours, fleet_shares::fleet_of_spin_neighbours,
    cluster::cluster_names_exclude_on_every_primary, cluster::cluster_releases_wake_the_other_side,
    cluster::cluster_failovers_let_nobody_in, cluster::cluster_moved_slots_let_nobody_in,
    sentinel::sentinel_has_javas_locks_acknowledged, sentinel::sentinel_names_exclude,
    sentinel::sentinel_releases_wake_the_other_side, sentinel::sentinel_failovers_let_nobody_in,
    sentinel::replicated_names_exclude, sentinel::replicated_releases_wake_the_other_side,
    sentinel::replicated_failovers_let_nobody_in,
);

beside!(redisson_3_52_0, "3.52.0":
    wake::a_release_in_java_wakes_us, wake::our_release_wakes_java,
    expiry::leases_that_lapse,
    reentry::states_are_the_same,
    force::waiters_enter_after_a_force,
    names::odd_names_exclude_and_wake,
    mapper::prefixes_meet,
    counter::two_and_two,
    watchdog::both_keep_what_they_hold,
    fair_order::fair_turns_are_in_order_of_arrival,
    fair_order::fair_releases_wake_the_other_sides_head,
    fair_state::fair_states_are_the_same, fair_names::fair_odd_names_queue_up,
    fair_kills::fair_live_waiters_pass_the_dead,
    fair_grants::fair_grants_never_go_to_java, fair_grants::fair_grants_go_to_us, fair_grants::fair_forced_open_in_java,
    rw_state::rw_states_are_the_same, rw_names::rw_odd_names_exclude_and_wake, rw_names::rw_prefixes_meet,
    rw_wake::rw_releases_wake_the_other_side, rw_wake::rw_readers_come_in_together,
    rw_kills::rw_an_old_redisson_loses_only_its_own,
    red::red_states_are_the_same, red::red_locks_exclude_each_other,
    multi::multi_states_are_the_same,
    fenced::fenced_tokens_grow_over_both, fenced::fenced_states_are_the_same,
    spin::spin_states_are_the_same,
    cluster::cluster_names_exclude_on_every_primary, cluster::cluster_releases_wake_the_other_side,
    cluster::cluster_failovers_let_nobody_in, cluster::cluster_moved_slots_let_nobody_in,
    sentinel::sentinel_has_javas_locks_acknowledged, sentinel::sentinel_names_exclude,
    sentinel::sentinel_releases_wake_the_other_side, sentinel::sentinel_failovers_let_nobody_in,
    sentinel::replicated_names_exclude, sentinel::replicated_releases_wake_the_other_side,
    sentinel::replicated_failovers_let_nobody_in,
);

/// A test that takes longer hangs. On a busy machine, a test may wait for several events.
const LIMIT: Duration = Duration::from_secs(540);

async fn in_time(name: &str, body: impl Future<Output = ()>) {
    if tokio::time::timeout(LIMIT, body).await.is_err() {
        panic!("{name} has not ended within {LIMIT:?}: it hangs in a wait that has no limit of its own");
    }
}
