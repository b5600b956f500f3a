//! Which file system a store lies on, and whether its locks and shared memory hold for everybody who can see the file.
//!
//! The write-ahead log needs shared memory between all users of the file (<https://www.sqlite.org/wal.html>). File systems that
//! several machines, or a host and its guests, see at once can't give it and fail without an error. Not here: what follows from
//! that; opening refuses, `doctor` tells.

use std::path::Path;

/// The file system of a path, by the name that the system gives its kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileSystem {
    kind: String,
}

/// Who sees the files of a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    /// One machine: locks and shared memory hold.
    Local,
    /// Other machines too, or the host of a virtual machine: a store is refused.
    Shared,
    /// Nobody told. A store is allowed, and `doctor` says so.
    Unknown,
}

/// Magic numbers of `statfs` on Linux (`linux/magic.h` and the file systems' own sources) with the kinds they stand for.
const MAGIC: &[(u32, &str)] = &[
    (0x0000_ef53, "ext"),
    (0x5846_5342, "xfs"),
    (0x9123_683e, "btrfs"),
    (0x2fc1_2fc1, "zfs"),
    (0xca45_1a4e, "bcachefs"),
    (0xf2f5_2010, "f2fs"),
    (0x0102_1994, "tmpfs"),
    (0x8584_58f6, "ramfs"),
    (0x794c_7630, "overlay"),
    (0x3153_464a, "jfs"),
    (0x5265_4973, "reiserfs"),
    (0x7366_746e, "ntfs3"),
    (0x0000_4d44, "vfat"),
    (0x2011_bab0, "exfat"),
    (0x0000_f15f, "ecryptfs"),
    (0x0000_6969, "nfs"),
    (0xff53_4d42, "cifs"),
    (0xfe53_4d42, "smb2"),
    (0x0000_517b, "smb"),
    (0x0102_1997, "9p"),
    (0x00c3_6400, "ceph"),
    (0x5346_414f, "afs"),
    (0x6b41_4653, "kafs"),
    (0x7375_7245, "coda"),
    (0x0000_564c, "ncp"),
    (0x0116_1970, "gfs2"),
    (0x7461_636f, "ocfs2"),
    (0x0bd0_0bd0, "lustre"),
    (0x4750_4653, "gpfs"),
    (0x786f_4256, "vboxsf"),
    (0xbacb_acbc, "vmhgfs"),
    (0x1983_0326, "fhgfs"),
    (0x6573_5546, FUSE),
];

/// The kind that hides the real one: virtiofs, sshfs and local ones all have its number.
const FUSE: &str = "fuse";

const LOCAL: &[&str] = &[
    "ext", "ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "bcachefs", "f2fs", "tmpfs", "ramfs",
    "overlay", "jfs", "reiserfs", "ntfs3", "vfat", "exfat", "ecryptfs",
];

const SHARED: &[&str] = &[
    "nfs",
    "nfs4",
    "cifs",
    "smb",
    "smb2",
    "smb3",
    "9p",
    "virtiofs",
    "ceph",
    "afs",
    "kafs",
    "coda",
    "ncp",
    "gfs2",
    "ocfs2",
    "lustre",
    "gpfs",
    "vboxsf",
    "vmhgfs",
    "fhgfs",
    "fuse.sshfs",
    "fuse.s3fs",
    "fuse.rclone",
    "fuse.gcsfuse",
    "fuse.glusterfs",
    "fuse.ceph",
    "fuse.ceph-fuse",
    "fuse.juicefs",
    "fuse.davfs",
    "fuse.vmhgfs-fuse",
    "fuse.grpcfuse",
    "fuse.osxfs",
    "fuse.mergerfs",
];

impl FileSystem {
    /// The file system of `path`, after symbolic links.
    ///
    /// # Errors
    ///
    /// When the system can't say, for example because the path does not exist.
    #[cfg(target_os = "linux")]
    pub fn of(path: &Path) -> std::io::Result<Self> {
        use std::os::unix::fs::MetadataExt as _;
        let magic = rustix::fs::statfs(path)?.f_type;
        // The field's width differs between architectures; the magic numbers have 32 bits.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "magic numbers have 32 bits, whatever the field's type"
        )]
        let kind = name_of(magic as u32);
        if kind.as_deref() != Some(FUSE) {
            return Ok(Self {
                kind: kind.unwrap_or_else(|| format!("{magic:#x}")),
            });
        }
        let device = std::fs::metadata(path)?.dev();
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let device = (rustix::fs::major(device), rustix::fs::minor(device));
        Ok(Self {
            kind: mounted_kind(&mounts, device).unwrap_or(FUSE).to_owned(),
        })
    }

    /// The file system of `path`: not known on this system.
    ///
    /// # Errors
    ///
    /// When the path does not exist.
    #[cfg(not(target_os = "linux"))]
    pub fn of(path: &Path) -> std::io::Result<Self> {
        std::fs::metadata(path)?;
        Ok(Self::named("unknown"))
    }

    /// A file system of that kind, as a test pretends it.
    pub(crate) fn named(kind: &str) -> Self {
        Self { kind: kind.into() }
    }

    /// The name of its kind, such as `ext`, `virtiofs` or `fuse.sshfs`; a number when there is no name.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Whether the store's locks are known to hold here. Opening allows a kind that nobody knows, and refuses known bad ones.
    pub fn is_known_local(&self) -> bool {
        self.reach() == Reach::Local
    }

    pub(crate) fn reach(&self) -> Reach {
        if SHARED.contains(&self.kind.as_str()) {
            Reach::Shared
        } else if LOCAL.contains(&self.kind.as_str()) {
            Reach::Local
        } else {
            Reach::Unknown
        }
    }
}

#[cfg(any(target_os = "linux", test))]
fn name_of(magic: u32) -> Option<String> {
    MAGIC
        .iter()
        .find(|(number, _)| *number == magic)
        .map(|(_, kind)| (*kind).to_owned())
}

/// The kind of the mount with that device number, from the text of `mountinfo` (proc(5)): fields, ` - `, then the kind.
#[cfg(any(target_os = "linux", test))]
fn mounted_kind(mounts: &str, device: (u32, u32)) -> Option<&str> {
    let device = format!("{}:{}", device.0, device.1);
    mounts.lines().find_map(|line| {
        let (fields, kinds) = line.split_once(" - ")?;
        (fields.split(' ').nth(2)? == device).then(|| kinds.split(' ').next())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn case_011_every_magic_number_has_a_verdict() {
        let table: Vec<String> = MAGIC
            .iter()
            .map(|(magic, kind)| {
                format!("{magic:08x} {kind}: {:?}", FileSystem::named(kind).reach())
            })
            .collect();
        insta::assert_snapshot!(table.join("\n"));
    }

    #[test]
    fn case_011_fuse_is_told_apart_by_its_mount() {
        let mounts = "\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 22 0:39 / /mnt/share rw,relatime - virtiofs share rw
41 22 0:40 / /home/ada/far rw,nosuid master:2 - fuse.sshfs ada@far:/ rw";
        assert_eq!(mounted_kind(mounts, (0, 39)), Some("virtiofs"));
        assert_eq!(mounted_kind(mounts, (0, 40)), Some("fuse.sshfs"));
        assert_eq!(mounted_kind(mounts, (0, 41)), None);
        assert_eq!(FileSystem::named("virtiofs").reach(), Reach::Shared);
        assert_eq!(FileSystem::named("fuse.sshfs").reach(), Reach::Shared);
        assert_eq!(FileSystem::named("fuse.novel").reach(), Reach::Unknown);
    }

    #[test]
    fn the_temporary_directory_has_a_kind() {
        let found = FileSystem::of(&std::env::temp_dir()).unwrap();
        assert!(!found.kind().is_empty());
    }
}
