//! The bodies of the suite, and the lists of them. A list is a macro that calls another for every body, with the runtime it
//! runs on.

pub mod exclusion;
pub mod expiry;
pub mod guards;
pub mod holding;
pub mod inputs;
pub mod names;
pub mod signals;
pub mod waiting;

/// About a holder that nobody waits for.
macro_rules! alone {
    ($body:ident) => {
        $body!(one_thread holding::lock_and_unlock_twice_on_one_handle);
        $body!(one_thread holding::only_its_owner_holds_it);
        $body!(threads holding::everybody_sees_it_locked_and_free);
        $body!(one_thread holding::an_unlock_by_a_non_holder_changes_nothing);
        $body!(one_thread holding::the_lease_belongs_to_the_call);
        $body!(cluster_node holding::three_rounds_on_a_cluster_node);
        $body!(threads holding::thirty_rounds_of_try_lock);
        $body!(one_thread holding::a_handle_names_its_lock_and_can_be_shared);

        $body!(threads exclusion::held_means_registered);

        $body!(one_thread expiry::a_lapsed_lease_does_not_stick_to_the_handle);

        $body!(one_thread guards::a_dropped_guard_frees_the_lock);
        $body!(threads guards::a_guard_may_be_dropped_anywhere);
        $body!(threads guards::an_unlock_dropped_half_way_still_frees);

        $body!(one_thread signals::a_release_is_never_a_loss);
        $body!(one_thread signals::extend_sets_the_lease_anew);

        $body!(one_thread inputs::impossible_leases_are_refused_unsent);
        $body!(one_thread inputs::the_shortest_and_the_longest_lease);
        $body!(one_thread inputs::a_key_of_another_type_is_left_alone);
    };
}
pub(crate) use alone;

/// About an owner that comes in again, and nobody else.
macro_rules! again {
    ($body:ident) => {
        $body!(one_thread holding::the_hold_count_follows_every_step);
        $body!(one_thread holding::a_partial_unlock_arms_the_lease_of_the_lock_call);

        $body!(one_thread guards::a_dropped_guard_gives_back_one_of_two_holds);
    };
}
pub(crate) use again;

/// About a holder that nobody waits for, for longer than leases last.
macro_rules! patient {
    ($body:ident) => {
        $body!(one_thread waiting::a_dropped_try_lock_leaves_no_orphan);
        $body!(one_server waiting::a_server_that_is_gone_is_an_error_and_not_a_hang);
        $body!(one_thread guards::an_owner_without_guard_is_not_renewed);
        $body!(one_thread signals::work_under_the_lock_is_stopped_when_it_is_lost);
        $body!(one_thread signals::the_end_is_announced_when_a_third_is_left);
        $body!(one_thread signals::extend_ends_the_watchdogs_care);
    };
}
pub(crate) use patient;

/// About an owner that comes in again, for longer than leases last.
macro_rules! again_patient {
    ($body:ident) => {
        $body!(one_thread guards::an_owner_without_guard_is_renewed_for_its_other_guard);
    };
}
pub(crate) use again_patient;

/// About a holder, and its rivals that wait, or are refused.
macro_rules! beside {
    ($body:ident) => {
        $body!(threads holding::force_unlock_frees_it_for_everyone);

        $body!(threads exclusion::one_name_does_not_starve_another);
        $body!(one_thread exclusion::all_kinds_of_acquire_exclude_each_other);

        $body!(one_thread waiting::the_wait_runs_out_on_time);
        $body!(one_thread waiting::a_waiter_waits_on_whatever_happens_around_it);
        $body!(threads waiting::a_release_wakes_a_waiter_at_once);
        $body!(threads waiting::dropped_waiters_leave_nothing);
        $body!(one_thread waiting::a_wait_without_end_and_a_wait_of_nothing);

        $body!(one_thread expiry::a_waiter_has_it_right_after_the_lease);
        $body!(one_server expiry::one_event_a_release_and_one_a_lapse);

        $body!(one_thread guards::an_owner_is_released_by_another_client);

        $body!(one_thread signals::an_explicit_lease_ends_here_before_anybody_else_has_it);

        $body!(one_thread inputs::impossible_names_are_refused_unsent);
        $body!(one_thread inputs::a_closed_client_says_so);

        $body!(threads names::odd_names_are_locks_of_their_own);
        $body!(cluster_node names::odd_names_stay_in_one_slot);
        $body!(one_thread names::a_prefix_is_part_of_the_key_and_not_of_the_name);
    };
}
pub(crate) use beside;

/// About an owner that comes in again, and its rivals.
macro_rules! again_beside {
    ($body:ident) => {
        $body!(threads holding::each_re_entry_needs_its_own_unlock);

        $body!(one_thread guards::an_owner_moves_to_another_client_and_back);
        $body!(threads guards::a_scope_is_one_owner);
    };
}
pub(crate) use again_beside;

/// About rivals that are told of a release.
macro_rules! told {
    ($body:ident) => {
        $body!(one_thread names::waiters_on_odd_names_are_woken);
    };
}
pub(crate) use told;

/// About a holder that dies.
macro_rules! dying {
    ($body:ident) => {
        $body!(threads expiry::a_crashed_clients_lock_is_free_within_the_watchdog);
    };
}
pub(crate) use dying;

/// About many holders of one client, each of which keeps out all others.
macro_rules! queued {
    ($body:ident) => {
        $body!(threads exclusion::one_client_fifteen_tasks);
        $body!(threads waiting::waiters_of_one_client_are_served_in_order);
    };
}
pub(crate) use queued;

/// About holders of many clients, each of which keeps out all others.
macro_rules! crowded {
    ($body:ident) => {
        $body!(threads exclusion::sixteen_clients_a_hundred_loops_each);
    };
}
pub(crate) use crowded;

/// About more of them.
macro_rules! swarming {
    ($body:ident) => {
        $body!(threads exclusion::a_hundred_clients_once_each);
        $body!(threads exclusion::five_thousand_jobs_leave_no_subscription);
    };
}
pub(crate) use swarming;

/// About a holder without a lease.
macro_rules! endless {
    ($body:ident) => {
        $body!(one_thread inputs::a_stranger_without_a_lease_is_waited_for_in_vain);
    };
}
pub(crate) use endless;
