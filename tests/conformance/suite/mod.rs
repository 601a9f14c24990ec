//! The test bodies, and their lists. A list is a macro that calls another macro for each body, with the body's runtime.

pub mod exclusion;
pub mod expiry;
pub mod guards;
pub mod holding;
pub mod inputs;
pub mod names;
pub mod signals;
pub mod waiting;

/// A holder without waiters.
macro_rules! alone {
    ($body:ident) => {
        $body!(one_thread holding::rounds_on_one_handle_leave_the_lock_free);
        $body!(threads holding::everybody_sees_who_holds_it);
        $body!(one_thread holding::an_unlock_by_a_non_holder_changes_nothing);
        $body!(one_thread holding::the_lease_belongs_to_the_call);
        $body!(cluster_node holding::names_of_many_slots_are_renewed);
        $body!(one_thread holding::a_handle_names_its_lock_and_can_be_shared);

        $body!(threads exclusion::held_means_registered);

        $body!(threads guards::a_guard_may_be_dropped_anywhere);
        $body!(threads guards::an_unlock_dropped_half_way_still_frees);

        $body!(one_thread signals::a_release_is_never_a_loss);
        $body!(one_thread signals::extend_replaces_the_lease);

        $body!(one_thread inputs::impossible_leases_are_refused_unsent);
        $body!(one_thread inputs::the_shortest_and_the_longest_lease);
        $body!(one_thread inputs::a_key_of_another_type_is_left_alone);
    };
}
pub(crate) use alone;

/// An owner that re-enters, without rivals.
macro_rules! again {
    ($body:ident) => {
        $body!(one_thread holding::the_hold_count_follows_every_step);
        $body!(one_thread holding::a_partial_unlock_keeps_the_lease_of_the_call);

        $body!(one_thread guards::a_dropped_guard_gives_back_one_of_two_holds);
    };
}
pub(crate) use again;

/// Renewals, and dead holders.
macro_rules! renewed {
    ($body:ident) => {
        $body!(one_thread waiting::a_dropped_try_lock_leaves_no_orphan);
        $body!(one_server waiting::a_server_that_is_gone_is_an_error_and_not_a_hang);
        $body!(threads expiry::the_lock_of_a_crashed_client_expires);
        $body!(one_thread guards::an_owner_without_guard_is_not_renewed);
        $body!(one_thread signals::work_under_the_lock_is_stopped_when_it_is_lost);
        $body!(one_thread signals::extend_ends_the_renewals);
    };
}
pub(crate) use renewed;

/// Renewals of an owner that re-enters.
macro_rules! again_renewed {
    ($body:ident) => {
        $body!(one_thread guards::an_owner_without_guard_is_renewed_for_its_other_guard);
    };
}
pub(crate) use again_renewed;

/// A holder, and rivals that wait or are refused.
macro_rules! beside {
    ($body:ident) => {
        $body!(threads holding::force_unlock_frees_it_for_everyone);

        $body!(threads exclusion::one_name_does_not_starve_another);
        $body!(one_thread exclusion::all_kinds_of_acquire_exclude_each_other);

        $body!(one_thread waiting::a_wait_ends_without_the_lock_and_disturbs_nobody);
        $body!(threads waiting::a_release_wakes_a_waiter_of_another_client);
        $body!(threads waiting::dropped_waiters_leave_nothing);

        $body!(one_thread expiry::a_waiter_has_the_lock_when_the_lease_is_over);
        $body!(one_server expiry::a_release_deletes_the_key_once_and_a_lease_expires_once);

        $body!(one_thread guards::an_owner_is_released_by_another_client);

        $body!(one_thread signals::a_lease_is_over_for_its_guard_before_anybody_else_has_the_lock);

        $body!(one_thread inputs::impossible_names_are_refused_unsent);
        $body!(one_thread inputs::a_closed_client_says_so);

        $body!(threads names::odd_names_are_locks_of_their_own);
        $body!(cluster_node names::odd_names_stay_in_one_slot);
        $body!(one_thread names::a_prefix_is_part_of_the_key_and_not_of_the_name);
    };
}
pub(crate) use beside;

/// An owner that re-enters, and its rivals.
macro_rules! again_beside {
    ($body:ident) => {
        $body!(threads holding::each_re_entry_needs_its_own_unlock);

        $body!(one_thread guards::an_owner_moves_to_another_client_and_back);
        $body!(threads guards::a_scope_is_one_owner);
    };
}
pub(crate) use again_beside;

/// Many exclusive holders of one client.
macro_rules! queued {
    ($body:ident) => {
        $body!(threads exclusion::one_client_fifteen_tasks);
        $body!(threads waiting::waiters_of_one_client_are_served_in_order);
    };
}
pub(crate) use queued;

/// Exclusive holders of many clients.
macro_rules! crowded {
    ($body:ident) => {
        $body!(threads exclusion::sixteen_clients_many_times_each);
    };
}
pub(crate) use crowded;

/// The same with more clients.
macro_rules! swarming {
    ($body:ident) => {
        $body!(threads exclusion::a_hundred_clients_once_each);
        $body!(threads exclusion::many_jobs_leave_no_subscription);
    };
}
pub(crate) use swarming;

/// A holder without a lease.
macro_rules! endless {
    ($body:ident) => {
        $body!(one_thread inputs::a_stranger_without_a_lease_is_waited_for_in_vain);
    };
}
pub(crate) use endless;
