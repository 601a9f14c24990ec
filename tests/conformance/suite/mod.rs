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
        $body!(one_thread holding::repeated_acquires_on_one_handle_leave_the_lock_free);
        $body!(one_thread holding::lease_applies_to_its_own_acquire_only);

        $body!(threads exclusion::held_lock_is_registered_for_renewal);

        $body!(threads guards::guard_dropped_anywhere_releases_the_lock);

        $body!(one_thread signals::release_is_never_reported_as_a_loss);
        $body!(one_thread signals::extend_replaces_the_lease);

        $body!(one_thread inputs::longest_lease_is_set_and_shortest_leases_leave_the_lock_free);
    };
}
pub(crate) use alone;

/// A holder with an owner, in a key that exists only while the lock is held. Permits have neither.
macro_rules! owned {
    ($body:ident) => {
        $body!(threads holding::holder_is_visible_to_every_client);
        $body!(one_thread holding::release_by_non_holder_is_refused_and_keeps_the_hold);

        $body!(one_thread inputs::key_of_wrong_type_is_reported_and_left_unchanged);
    };
}
pub(crate) use owned;

/// An owner that re-enters, without rivals.
macro_rules! again {
    ($body:ident) => {
        $body!(one_thread holding::hold_count_follows_every_acquire_and_release);
        $body!(one_thread holding::release_of_one_of_several_holds_keeps_the_lease);
    };
}
pub(crate) use again;

/// Renewals, and dead holders.
macro_rules! renewed {
    ($body:ident) => {
        $body!(one_thread waiting::dropped_try_lock_leaves_no_keys);
        $body!(one_server waiting::acquire_without_a_server_returns_an_error);
        $body!(threads expiry::lock_of_crashed_client_expires);
        $body!(one_thread guards::only_guards_without_explicit_lease_are_renewed);
        $body!(one_thread signals::run_stops_its_work_when_the_lock_is_lost);
    };
}
pub(crate) use renewed;

/// A holder, and rivals that wait or are refused.
macro_rules! beside {
    ($body:ident) => {
        $body!(threads exclusion::one_name_does_not_starve_another);
        $body!(one_thread exclusion::all_kinds_of_acquire_exclude_each_other);

        $body!(one_thread waiting::timed_out_wait_does_not_disturb_other_waiters);
        $body!(threads waiting::release_wakes_a_waiter_of_another_client);
        $body!(threads waiting::dropped_waiters_leave_no_subscription_and_no_hold);

        $body!(one_thread expiry::waiter_acquires_when_the_lease_expires);

        $body!(one_thread inputs::invalid_names_are_refused_without_sending_commands);
        $body!(one_thread inputs::closed_client_returns_closed_errors);

        $body!(threads names::odd_names_are_separate_locks);
        $body!(cluster_node names::odd_names_stay_in_one_slot);
        $body!(one_thread names::prefix_is_part_of_the_key_and_not_of_the_name);
    };
}
pub(crate) use beside;

/// A holder as in `owned`, and its rivals.
macro_rules! owned_beside {
    ($body:ident) => {
        $body!(threads holding::force_unlock_frees_the_lock_and_wakes_waiters);

        $body!(one_server expiry::release_deletes_key_once_and_lease_expires_once);

        $body!(one_thread guards::hold_of_owner_is_released_by_another_client);
    };
}
pub(crate) use owned_beside;

/// An owner that re-enters, and its rivals.
macro_rules! again_beside {
    ($body:ident) => {
        $body!(threads holding::each_re_entry_needs_its_own_unlock);
        $body!(threads guards::scope_acquires_as_one_owner);
    };
}
pub(crate) use again_beside;

/// Many exclusive holders of one client.
macro_rules! queued {
    ($body:ident) => {
        $body!(threads exclusion::fifteen_tasks_of_one_client_exclude_each_other);
        $body!(threads waiting::waiters_of_one_client_are_served_in_order);
    };
}
pub(crate) use queued;

/// Exclusive holders of many clients.
macro_rules! crowded {
    ($body:ident) => {
        $body!(threads exclusion::sixteen_clients_exclude_each_other);
        $body!(threads exclusion::hundred_clients_exclude_each_other);
        $body!(threads exclusion::many_acquires_leave_no_subscription);
    };
}
pub(crate) use crowded;

/// A holder without a lease.
macro_rules! endless {
    ($body:ident) => {
        $body!(one_thread inputs::wait_behind_a_stranger_without_a_lease_times_out);
    };
}
pub(crate) use endless;
