//! Fields of records and images. All integers are little-endian.

use strake_units::Name;

use crate::error::{Error, ErrorKind};
use crate::ids::Number;
use crate::record::SpacePolicy;

/// Bytes of the CRC-32C at the end.
const CRC_BYTES: usize = 4;

/// Writes fields.
#[derive(Debug, Default)]
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    /// Continues after these bytes.
    pub(crate) fn after(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns the bytes without a CRC.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(bytes);
    }

    pub(crate) fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.bytes(&value.to_le_bytes());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.bytes(&value.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.bytes(&value.to_le_bytes());
    }

    pub(crate) fn name(&mut self, name: &Name) {
        let text = name.as_str();
        self.u8(text.len() as u8);
        self.bytes(text.as_bytes());
    }

    pub(crate) fn policy(&mut self, policy: SpacePolicy) {
        self.u8(u8::from(policy.reserved));
        self.u32(policy.quota.unwrap_or(u32::MAX));
    }

    /// Returns the bytes, with their CRC-32C.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        let crc = crc32c::crc32c(&self.0);
        self.u32(crc);
        self.0
    }
}

/// Reads fields, never beyond the end.
#[derive(Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Checks the CRC-32C at the end of the bytes.
    pub(crate) fn checked(bytes: &'a [u8]) -> Result<Self, Error> {
        let Some((fields, crc)) = bytes.split_last_chunk::<CRC_BYTES>() else {
            return Err(ErrorKind::Truncated { name: "crc" }.into());
        };
        let is_right = crc32c::crc32c(fields) == u32::from_le_bytes(*crc);
        if is_right { Ok(Self(fields)) } else { Err(ErrorKind::Checksum.into()) }
    }

    pub(crate) fn array<const N: usize>(&mut self, name: &'static str) -> Result<[u8; N], Error> {
        let Some((field, rest)) = self.0.split_first_chunk::<N>() else {
            return Err(ErrorKind::Truncated { name }.into());
        };
        self.0 = rest;
        Ok(*field)
    }

    pub(crate) fn u8(&mut self, name: &'static str) -> Result<u8, Error> {
        Ok(u8::from_le_bytes(self.array(name)?))
    }

    pub(crate) fn u16(&mut self, name: &'static str) -> Result<u16, Error> {
        Ok(u16::from_le_bytes(self.array(name)?))
    }

    pub(crate) fn u32(&mut self, name: &'static str) -> Result<u32, Error> {
        Ok(u32::from_le_bytes(self.array(name)?))
    }

    pub(crate) fn u64(&mut self, name: &'static str) -> Result<u64, Error> {
        Ok(u64::from_le_bytes(self.array(name)?))
    }

    /// Reads the number of a record: 56 bits, so that the identifier of a leaf can contain it.
    pub(crate) fn number(&mut self, name: &'static str) -> Result<Number, Error> {
        let number = self.u64(name)?;
        self.require(name, number, number < 1 << 56)?;
        Ok(Number(number))
    }

    pub(crate) fn flag(&mut self, name: &'static str) -> Result<bool, Error> {
        let flag = self.u8(name)?;
        self.require(name, u64::from(flag), flag < 2)?;
        Ok(flag == 1)
    }

    pub(crate) fn name(&mut self) -> Result<Name, Error> {
        let length = self.u8("name")?;
        let Some((text, rest)) = self.0.split_at_checked(usize::from(length)) else {
            return Err(ErrorKind::Truncated { name: "name" }.into());
        };
        self.0 = rest;
        let text = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
        text.ok_or(ErrorKind::Field { name: "name", recorded: u64::from(length) }.into())
    }

    pub(crate) fn policy(&mut self) -> Result<SpacePolicy, Error> {
        let reserved = self.flag("reserved")?;
        let quota = self.u32("quota")?;
        Ok(SpacePolicy { reserved, quota: (quota != u32::MAX).then_some(quota) })
    }

    pub(crate) fn require(
        &self,
        name: &'static str,
        recorded: u64,
        is_right: bool,
    ) -> Result<(), Error> {
        if is_right { Ok(()) } else { Err(ErrorKind::Field { name, recorded }.into()) }
    }

    /// Refuses a count whose items need more bytes than remain, before memory is allocated for them.
    pub(crate) fn require_room(&self, name: &'static str, bytes: u64) -> Result<(), Error> {
        let has = bytes <= self.0.len() as u64;
        if has { Ok(()) } else { Err(ErrorKind::Truncated { name }.into()) }
    }

    pub(crate) fn end(&self) -> Result<(), Error> {
        self.require("end", self.0.len() as u64, self.0.is_empty())
    }
}
