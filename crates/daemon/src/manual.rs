//! The manual page straked(8), from the definitions of the options.

use std::io;

use clap::CommandFactory;
use clap_mangen::Man;

use crate::args::Args;

/// The sections that the definitions do not contain (groff_man(7)).
const SECTIONS: &str = r".SH SIGNALS
.TP
SIGTERM, SIGINT, SIGHUP
Orderly stop: requests in progress are completed, and the arrays are marked clean, within 40 seconds.
.SH EXIT STATUS
.TP
0
clean shutdown
.TP
2
failure after the start
.TP
3
refused to start: wrong options, wrong configuration file, another daemon, or an unusable state directory
.SH PRIVILEGES
The service straked.service runs as the user strake, without capabilities. Block devices are opened through the group
disk. Files that serve as drives must belong to the user strake, below /var/lib/strake, or below
a folder that a drop-in of the unit names with ReadWritePaths= and that the option write-dirs names.
.PP
The service cannot take NVMe drives from the kernel, switch slot lights, or read log pages of NVMe drives of the kernel.
To permit this, install the drop-in /usr/share/doc/strake/examples/privileged.conf, whose comment has the commands.
.SH CONTAINMENT
At its start, the daemon gives up rights. The diagnosis of strake(1) lists the measures, and warns of those that the
kernel does not support.
.PP
The daemon writes no core dumps, and other processes of its user cannot read its memory. The option core-dumps permits
both. A core dump contains keys, secrets of hosts, credentials of hooks and data of clients.
.PP
The daemon never writes to system folders: /bin, /boot, /efi, /etc, /gnu, /lib, /lib32, /lib64, /libx32, /nix, /opt,
/sbin, /snap and /usr. Programs of hooks are executed only from these folders and from those that the option hook-dirs
names. The option write-dirs replaces the default any, and limits writes to named folders, to /dev, /sys and /tmp, and
to the folders of the daemon. The service has the default none. Named folders must exist at the start. If a file system
is mounted on such a folder later, its files need a restart of the daemon. A daemon that runs as root should have
write-dirs: with any, it can write places that lead to all rights, such as tables of cron and units in /run.
.PP
The containment is an obstacle for an attacker who controls the daemon, and no boundary: an interpreter executes any
file, and the mode and the owner of files are not restricted.
.PP
The daemon and its hooks cannot trace processes, mount file systems, load kernel modules, create namespaces or use BPF.
Programs such as sudo give no rights.
.SH ENVIRONMENT
.TP
STRAKE_STATE_DIR, STRAKE_SOCKET, STRAKE_CONFIG, STRAKE_OPERATOR_GROUP, STRAKE_VIEWER_GROUP
the options of the same name; the command line has priority
.TP
STRAKE_METRICS, STRAKE_KERNEL
the same
.TP
RUST_LOG
levels of log lines, such as warn or warn,strake_control=debug
.TP
STATE_DIRECTORY, RUNTIME_DIRECTORY
defaults of the state directory and of the folder of the socket, set by systemd (systemd.exec(5))
.TP
NOTIFY_SOCKET, WATCHDOG_USEC
the service manager to notify (sd_notify(3))
.SH FILES
.TP
/etc/strake/straked.toml
configuration file of the service straked.service
.TP
/etc/strake/slots.toml
names of slots
.TP
/run/strake/straked.sock
socket of the service
.TP
/var/lib/strake
state directory of the service
.SH SEE ALSO
strake(1), systemctl(1)
";

/// Writes the manual page.
///
/// # Errors
/// `to` cannot be written.
pub fn write(to: &mut impl io::Write) -> io::Result<()> {
    let man = Man::new(Args::command()).section("8").manual("Strake");
    man.render(to)?;
    to.write_all(SECTIONS.as_bytes())
}
