//! What an export offers: an array, or a volume of a pool on the array.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use strake_units::Uuid;

use crate::record::store::ExportRecord;

/// The domain of the identities of volumes. A change would change the identity that hosts see.
const DOMAIN: &[u8] = b"strake volume identity 1";

/// A volume or snapshot. Neither part changes when a pool or a volume is renamed, and no part is used again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeRef {
    /// Identity of the pool.
    pub pool: String,
    /// Number of the volume in the pool.
    pub id: u32,
}

impl VolumeRef {
    /// Returns the identity of the volume, which hosts see as the UUID of its namespace: a UUID of version 8 (RFC 9562,
    /// section 5.8) from a hash of the two parts.
    #[must_use]
    pub fn uuid(&self) -> Uuid {
        let mut hash = Sha256::new();
        hash.update(DOMAIN);
        hash.update(self.pool.as_bytes());
        hash.update(self.id.to_le_bytes());
        let digest = hash.finalize();
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&digest[..16]);
        bytes[6] = (bytes[6] & 0x0f) | 0x80;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        Uuid(bytes)
    }
}

impl ExportRecord {
    /// Returns the identity of what the export offers, to which reservations and namespaces belong: that of the array,
    /// or that of the volume.
    #[must_use]
    pub fn subject(&self) -> String {
        let volume = self.volume.as_ref();
        volume.map_or_else(|| self.array.clone(), |volume| volume.uuid().to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::VolumeRef;

    #[test]
    fn the_identity_of_a_volume_never_changes() {
        let pool = "00112233-4455-4677-8899-aabbccddeeff".to_owned();
        let volume = VolumeRef { pool, id: 7 };
        assert_eq!(volume.uuid().to_string(), "86bd459b-6783-8a28-bd38-380b68d40426");
        let other = VolumeRef { id: 8, ..volume.clone() };
        assert_ne!(volume.uuid(), other.uuid());
    }
}
