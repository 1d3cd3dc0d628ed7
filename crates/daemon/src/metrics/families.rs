//! All metrics. `docs/metrics.md` has the same table, and a test compares them.

use super::Snapshot;
use super::text::{Family, Kind, Text};
use std::collections::BTreeMap;
use std::fmt::Display;
use strake_api::v1::{
    Array, Counters, Drive, DriveErrors, DriveHealth, DrivePath, Export, Hook, Pool, Progress,
    QosLimit, Scrub,
};
use strake_control::Latencies;
use strake_units::Nanos;

const fn gauge(
    name: &'static str,
    help: &'static str,
    samples: fn(&Snapshot, &mut Text),
) -> Family {
    Family { name, kind: Kind::Gauge, help, samples }
}

const fn counter(
    name: &'static str,
    help: &'static str,
    samples: fn(&Snapshot, &mut Text),
) -> Family {
    Family { name, kind: Kind::Counter, help, samples }
}

const fn histogram(
    name: &'static str,
    help: &'static str,
    samples: fn(&Snapshot, &mut Text),
) -> Family {
    Family { name, kind: Kind::Histogram, help, samples }
}

/// The limits of the buckets of latencies. Drives of all kinds are in their range: NVMe drives at its begin, drives
/// that are about to exceed the time limit of a request at its end.
const LIMITS: [(&str, Nanos); 14] = [
    ("0.00001", Nanos(10 * Nanos::MICRO.0)),
    ("0.00002", Nanos(20 * Nanos::MICRO.0)),
    ("0.00005", Nanos(50 * Nanos::MICRO.0)),
    ("0.0001", Nanos(100 * Nanos::MICRO.0)),
    ("0.0002", Nanos(200 * Nanos::MICRO.0)),
    ("0.0005", Nanos(500 * Nanos::MICRO.0)),
    ("0.001", Nanos::MILLI),
    ("0.002", Nanos(2 * Nanos::MILLI.0)),
    ("0.005", Nanos(5 * Nanos::MILLI.0)),
    ("0.02", Nanos(20 * Nanos::MILLI.0)),
    ("0.1", Nanos(100 * Nanos::MILLI.0)),
    ("0.5", Nanos(500 * Nanos::MILLI.0)),
    ("2.0", Nanos(2 * Nanos::SECOND.0)),
    ("8.0", Nanos(8 * Nanos::SECOND.0)),
];

/// The families of all metrics.
pub const FAMILIES: &[Family] = &[
    gauge("strake_build_info", "The running version.", |s, to| {
        to.say(&[("version", &s.daemon.version)], 1);
    }),
    gauge("strake_uptime_seconds", "Time since the daemon started.", |s, to| {
        to.say(&[], s.daemon.uptime_us as f64 / 1e6);
    }),
    gauge("strake_memory_bytes", "Resident memory of the daemon.", |s, to| {
        to.say(&[], s.daemon.memory_bytes);
    }),
    counter("strake_cpu_seconds", "Processor time of the daemon.", |s, to| {
        to.say(&[], s.daemon.cpu_us as f64 / 1e6);
    }),
    gauge("strake_problems", "Problems in the status of the daemon by severity.", |s, to| {
        of_words(to, "severity", &["degraded", "failed"], |word| {
            s.problems.iter().filter(|problem| problem.severity == word).count()
        });
    }),
    gauge("strake_state_writable", "1 if the state directory can be written, else 0.", |s, to| {
        to.say(&[], u8::from(s.is_state_writable));
    }),
    gauge("strake_array_state", "1 for each state that an array has.", |s, to| {
        for array in &s.arrays {
            for state in &array.states {
                to.say(&[("array", &array.name), ("state", state)], 1);
            }
        }
    }),
    gauge(
        "strake_array_wait_seconds",
        "Time for which the start of an array has waited.",
        |s, to| {
            for array in &s.arrays {
                for wait in &array.waits {
                    let labels = [("array", array.name.as_str()), ("object", &wait.object)];
                    to.say(&labels, wait.waited_us as f64 / 1e6);
                }
            }
        },
    ),
    gauge("strake_array_size_bytes", "Capacity of a running array.", |s, to| {
        of_running(s, to, |array, _| array.size_bytes);
    }),
    gauge(
        "strake_array_redundancy_left",
        "Number of further member failures that the array survives in the worst case.",
        |s, to| {
            of_running(s, to, |array, _| array.redundancy_left.into());
        },
    ),
    gauge("strake_array_bad_blocks", "Blocks that could not be reconstructed.", |s, to| {
        of_running(s, to, |array, _| array.bad_blocks);
    }),
    gauge("strake_array_in_doubt_bytes", "Bytes of regions in doubt.", |s, to| {
        of_running(s, to, |array, _| array.in_doubt_bytes);
    }),
    gauge(
        "strake_array_suspect_bytes",
        "Bytes that may have been reconstructed wrongly.",
        |s, to| {
            of_running(s, to, |array, _| array.suspect_bytes);
        },
    ),
    gauge("strake_array_corrupt_bytes", "Unrepaired bytes that a scrub found wrong.", |s, to| {
        of_running(s, to, |array, _| array.corrupt_bytes);
    }),
    gauge("strake_array_memory_bytes", "Memory allocated for the array.", |s, to| {
        of_running(s, to, |array, _| array.memory_bytes);
    }),
    gauge("strake_array_members", "Members of an array by state.", |s, to| {
        for array in &s.arrays {
            let mut states = BTreeMap::new();
            for member in &array.members {
                *states.entry(member.state.as_str()).or_insert(0) += 1;
            }
            for (state, count) in states {
                to.say(&[("array", &array.name), ("state", state)], count);
            }
        }
    }),
    gauge(
        "strake_array_member_sitting_out",
        "1 if reads avoid the member because the member is slow, else 0.",
        |s, to| {
            for array in &s.arrays {
                for member in &array.members {
                    let position = member.position.to_string();
                    let labels = [("array", array.name.as_str()), ("member", &position)];
                    to.say(&labels, u8::from(member.sitting_out));
                }
            }
        },
    ),
    gauge(
        "strake_array_scrub_ended_timestamp_seconds",
        "End of the last complete scrub, in seconds since 1970.",
        |s, to| {
            of_scrubs(s, to, |scrub| scrub.ended_us);
        },
    ),
    gauge(
        "strake_array_scrub_next_timestamp_seconds",
        "Time of the next scheduled scrub, in seconds since 1970.",
        |s, to| {
            of_scrubs(s, to, |scrub| scrub.next_us);
        },
    ),
    counter("strake_array_reads", "Completed reads of an array.", |s, to| {
        of_running(s, to, |_, counters| counters.reads);
    }),
    counter("strake_array_read_bytes", "Bytes of completed reads of an array.", |s, to| {
        of_running(s, to, |_, counters| counters.read_bytes);
    }),
    counter("strake_array_writes", "Completed writes of an array.", |s, to| {
        of_running(s, to, |_, counters| counters.writes);
    }),
    counter("strake_array_write_bytes", "Bytes of completed writes of an array.", |s, to| {
        of_running(s, to, |_, counters| counters.write_bytes);
    }),
    histogram(
        "strake_array_request_duration_seconds",
        "Latency of client requests to an array.",
        |s, to| {
            for (array, latencies) in &s.latencies {
                of_latencies(to, &[("array", array)], &latencies.requests);
            }
        },
    ),
    histogram(
        "strake_array_member_io_duration_seconds",
        "Latency of I/Os of a member's drive.",
        |s, to| {
            for (array, latencies) in &s.latencies {
                for (position, latencies) in latencies.members.iter().enumerate() {
                    let labels = [("array", array.as_str()), ("member", &position.to_string())];
                    of_latencies(to, &labels, latencies);
                }
            }
        },
    ),
    counter("strake_array_degraded_reads", "Reads reconstructed from other members.", |s, to| {
        of_running(s, to, |_, counters| counters.degraded_reads);
    }),
    counter("strake_array_medium_errors", "Blocks of members that could not be read.", |s, to| {
        of_running(s, to, |_, counters| counters.medium_errors);
    }),
    counter("strake_array_repairs", "Blocks of members that were rewritten.", |s, to| {
        of_running(s, to, |_, counters| counters.repairs);
    }),
    gauge("strake_array_job_done_bytes", "Progress of a job of an array.", |s, to| {
        of_jobs(s, to, |job| job.done_bytes);
    }),
    gauge("strake_array_job_total_bytes", "Total size of a job of an array.", |s, to| {
        of_jobs(s, to, |job| job.total_bytes);
    }),
    gauge("strake_array_job_state", "1 for the current state of a job.", |s, to| {
        for array in &s.arrays {
            for job in &array.progress {
                let labels = [("array", array.name.as_str()), ("kind", &job.job)];
                to.say(&[&labels[..], &[("state", &job.state)]].concat(), 1);
            }
        }
    }),
    gauge("strake_drive_state", "1 for the current state of a drive.", |s, to| {
        for drive in &s.drives {
            to.say(&[("drive", &drive.path), ("state", &drive.state)], 1);
        }
    }),
    gauge("strake_drive_size_bytes", "Capacity of a drive.", |s, to| {
        for drive in &s.drives {
            to.say(&[("drive", &drive.path)], drive.size_bytes);
        }
    }),
    counter("strake_drive_errors", "Errors of a member's drive by reason.", |s, to| {
        for drive in &s.drives {
            for (reason, count) in drive.errors.iter().flat_map(reasons) {
                to.say(&[("drive", &drive.path), ("reason", reason)], count);
            }
        }
    }),
    gauge(
        "strake_drive_wear_ratio",
        "Used fraction of the rated endurance of a drive.",
        |s, to| {
            of_health(s, to, |page| Some(f64::from(page.wear_percent) / 100.0));
        },
    ),
    gauge(
        "strake_drive_spare_ratio",
        "Remaining fraction of the spare blocks of a drive.",
        |s, to| {
            // A drive that does not count its spare blocks reports 0 for both.
            of_health(s, to, |page| {
                let counts = page.spare_percent > 0 || page.spare_threshold_percent > 0;
                counts.then(|| f64::from(page.spare_percent) / 100.0)
            });
        },
    ),
    gauge("strake_drive_temperature_celsius", "Temperature of a drive.", |s, to| {
        of_health(s, to, |page| page.temperature_c);
    }),
    counter("strake_drive_media_errors", "Media errors that a drive reports.", |s, to| {
        of_health(s, to, |page| Some(page.media_errors));
    }),
    gauge(
        "strake_drive_failure_predicted",
        "1 if a drive predicts its failure, else 0.",
        |s, to| {
            of_health(s, to, |page| Some(u64::from(!page.prediction.is_empty())));
        },
    ),
    gauge("strake_drive_warning", "1 for each critical warning that a drive reports.", |s, to| {
        for page in &s.health {
            for warning in &page.warnings {
                to.say(&[("drive", &page.path), ("warning", warning)], 1);
            }
        }
    }),
    gauge("strake_drive_path_up", "1 if the path to a drive is connected, else 0.", |s, to| {
        of_paths(s, to, |path| u64::from(path.state == "live"));
    }),
    gauge("strake_drive_path_used", "1 if the path to a drive carries I/O, else 0.", |s, to| {
        of_paths(s, to, |path| u64::from(path.used));
    }),
    counter("strake_drive_path_reconnects", "Number of reconnects of a path.", |s, to| {
        of_paths(s, to, |path| path.reconnects);
    }),
    counter(
        "strake_drive_reconnects",
        "Number of times that I/O to a drive continued over a new association.",
        |s, to| {
            of_remote(s, to, |drive| drive.reconnects);
        },
    ),
    gauge("strake_drive_queues", "Open queues of a remote drive.", |s, to| {
        of_remote(s, to, |drive| drive.queues.len() as u64);
    }),
    gauge("strake_drive_held_requests", "Requests that wait for a remote drive.", |s, to| {
        of_remote(s, to, |drive| drive.queues.iter().map(|queue| queue.held).sum());
    }),
    gauge("strake_spares", "Spares by state.", |s, to| {
        of_words(to, "state", &["ready", "missing", "failed"], |word| {
            s.spares.iter().filter(|spare| spare.state == word).count()
        });
    }),
    gauge("strake_pool_state", "1 for the current state of a pool.", |s, to| {
        for pool in &s.pools {
            // A pool whose header cannot be read has no name, so the array tells such pools apart.
            to.say(&[("array", &pool.array), ("pool", &pool.name), ("state", &pool.state)], 1);
        }
    }),
    gauge("strake_pool_size_bytes", "Space of a pool for volumes.", |s, to| {
        of_pools(s, to, |pool| pool.size_bytes);
    }),
    gauge("strake_pool_used_bytes", "Space of a pool in use.", |s, to| {
        of_pools(s, to, |pool| pool.used_bytes);
    }),
    gauge("strake_pool_free_bytes", "Free space of a pool.", |s, to| {
        of_pools(s, to, |pool| pool.free_bytes);
    }),
    gauge("strake_pool_reserved_bytes", "Free space kept for thick volumes.", |s, to| {
        of_pools(s, to, |pool| pool.reserved_bytes);
    }),
    gauge("strake_pool_volumes", "Volumes of a pool, without snapshots.", |s, to| {
        of_pools(s, to, |pool| pool.volumes.into());
    }),
    gauge("strake_pool_snapshots", "Snapshots of a pool.", |s, to| {
        of_pools(s, to, |pool| pool.snapshots.into());
    }),
    gauge("strake_limit_rate", "The rate of a limit, in I/Os or bytes per second.", |s, to| {
        of_limits(s, to, |limit| limit.rate);
    }),
    counter("strake_limit_used", "I/Os or bytes that a limit counted.", |s, to| {
        of_limits(s, to, |limit| limit.used);
    }),
    counter("strake_limit_throttled_requests", "Requests that waited for a limit.", |s, to| {
        of_limits(s, to, |limit| limit.throttled);
    }),
    counter("strake_limit_throttled_seconds", "Time that requests waited for a limit.", |s, to| {
        of_limits(s, to, |limit| limit.throttled_ns as f64 / 1e9);
    }),
    gauge("strake_export_up", "1 if an export serves its array, else 0.", |s, to| {
        for export in &s.exports {
            to.say(&[("export", &export.name)], u8::from(is_online(export)));
        }
    }),
    gauge("strake_export_connections", "Client connections of an export.", |s, to| {
        of_exports(s, to, |export| export.connections.into());
    }),
    counter("strake_export_reads", "Successful reads of an export.", |s, to| {
        of_exports(s, to, |export| export.reads);
    }),
    counter("strake_export_read_bytes", "Bytes of successful reads of an export.", |s, to| {
        of_exports(s, to, |export| export.read_bytes);
    }),
    counter("strake_export_writes", "Successful writes of an export.", |s, to| {
        of_exports(s, to, |export| export.writes);
    }),
    counter("strake_export_write_bytes", "Bytes of successful writes of an export.", |s, to| {
        of_exports(s, to, |export| export.write_bytes);
    }),
    counter("strake_export_flushes", "Successful flushes of an export.", |s, to| {
        of_exports(s, to, |export| export.flushes);
    }),
    counter("strake_export_errors", "Requests that an export answered with an error.", |s, to| {
        of_exports(s, to, |export| export.errors);
    }),
    counter(
        "strake_export_refused_connections",
        "Connections that were closed because the connection limit of the address was reached.",
        |s, to| {
            for (listen, count) in &s.refused {
                to.say(&[("listen", listen)], count);
            }
        },
    ),
    counter("strake_hook_delivered", "Messages delivered to a notification hook.", |s, to| {
        of_hooks(s, to, |hook| hook.delivered);
    }),
    counter(
        "strake_hook_failed",
        "Messages that could not be delivered to a notification hook.",
        |s, to| {
            of_hooks(s, to, |hook| hook.failed);
        },
    ),
];

/// Writes a histogram for each kind of operation, also if none occurred: a rate needs the value before the first.
fn of_latencies(to: &mut Text, labels: &[(&str, &str)], latencies: &Latencies) {
    let Latencies { read, write, flush } = latencies;
    for (operation, counts) in [("read", read), ("write", write), ("flush", flush)] {
        let (count, sum) = (counts.count(), counts.sum().0 as f64 / 1e9);
        let labels = [labels, &[("operation", operation)]].concat();
        let up_to = LIMITS.iter().map(|(text, limit)| (*text, counts.at_most(*limit)));
        to.histogram(&labels, up_to, (count, sum));
    }
}

/// Writes a count for each of `words`, also if the count is 0, so that an alert can compare the counts at any time.
fn of_words(to: &mut Text, label: &str, words: &[&str], count: impl Fn(&str) -> usize) {
    for word in words {
        to.say(&[(label, word)], count(word));
    }
}

/// Writes a time of the scrubs of each running array, if the time is known.
fn of_scrubs(s: &Snapshot, to: &mut Text, time_us: fn(&Scrub) -> Option<u64>) {
    for array in &s.arrays {
        if let Some(us) = array.scrub.as_ref().and_then(time_us) {
            to.say(&[("array", &array.name)], us as f64 / 1e6);
        }
    }
}

/// Writes a number of each limit.
fn of_limits<T: Display>(s: &Snapshot, to: &mut Text, figure: fn(&QosLimit) -> T) {
    for object in &s.limits {
        for limit in &object.limits {
            let labels = [("kind", &object.kind), ("name", &object.name), ("limit", &limit.aspect)];
            to.say(&labels.map(|(label, value)| (label, value.as_str())), figure(limit));
        }
    }
}

/// Writes a number of each pool that serves.
fn of_pools(s: &Snapshot, to: &mut Text, figure: fn(&Pool) -> u64) {
    for pool in s.pools.iter().filter(|pool| pool.state != "offline") {
        to.say(&[("pool", &pool.name)], figure(pool));
    }
}

fn of_hooks(s: &Snapshot, to: &mut Text, figure: fn(&Hook) -> u64) {
    for hook in &s.hooks {
        to.say(&[("hook", &hook.name)], figure(hook));
    }
}

/// Writes a value of each running array. Other arrays have no value.
fn of_running(s: &Snapshot, to: &mut Text, figure: fn(&Array, &Counters) -> u64) {
    for array in &s.arrays {
        if let Some(counters) = &array.counters {
            to.say(&[("array", &array.name)], figure(array, counters));
        }
    }
}

fn of_jobs(s: &Snapshot, to: &mut Text, figure: fn(&Progress) -> u64) {
    for array in &s.arrays {
        for job in &array.progress {
            to.say(&[("array", &array.name), ("kind", &job.job)], figure(job));
        }
    }
}

/// Writes a sample for each drive with a health page.
fn of_health<T: Display>(s: &Snapshot, to: &mut Text, value: fn(&DriveHealth) -> Option<T>) {
    for page in &s.health {
        if let Some(value) = value(page) {
            to.say(&[("drive", &page.path)], value);
        }
    }
}

/// Writes a value of each path to a remote drive.
fn of_paths(s: &Snapshot, to: &mut Text, figure: fn(&DrivePath) -> u64) {
    for drive in &s.drives {
        for path in &drive.paths {
            to.say(&[("drive", &drive.path), ("path", &path.address)], figure(path));
        }
    }
}

/// Writes a value of each remote drive that was connected.
fn of_remote(s: &Snapshot, to: &mut Text, figure: fn(&Drive) -> u64) {
    for drive in s.drives.iter().filter(|drive| !drive.paths.is_empty()) {
        to.say(&[("drive", &drive.path)], figure(drive));
    }
}

fn is_online(export: &Export) -> bool {
    export.state == "online"
}

/// Writes a value of each export whose array is served.
fn of_exports(s: &Snapshot, to: &mut Text, figure: fn(&Export) -> u64) {
    for export in s.exports.iter().filter(|export| is_online(export)) {
        to.say(&[("export", &export.name)], figure(export));
    }
}

fn reasons(errors: &DriveErrors) -> [(&'static str, u64); 5] {
    let DriveErrors { medium, slow, timeouts, device, sit_outs, .. } = *errors;
    [
        ("medium", medium),
        ("slow", slow),
        ("timeout", timeouts),
        ("device", device),
        ("sitting_out", sit_outs),
    ]
}
