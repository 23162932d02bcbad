//! CRC16 (XMODEM): the checksum by which Redis Cluster assigns keys to hash slots, and Tidegate assigns clients to
//! partitions.

/// The number of hash slots of a Redis Cluster.
pub const HASH_SLOTS: u16 = 16_384;

const TABLE: [u16; 256] = {
    let mut table = [0; 256];
    let mut byte = 0_u16;
    while byte < 256 {
        let (mut crc, mut bit) = (byte << 8, 0);
        while bit < 8 {
            crc = if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 };
            bit += 1;
        }
        table[byte as usize] = crc;
        byte += 1;
    }
    table
};

/// Returns the checksum of `bytes`. Its remainder by [`HASH_SLOTS`] is the hash slot of a key with this hash tag.
pub fn crc16(bytes: &[u8]) -> u16 {
    crc16_continue(0, bytes)
}

/// Continues a checksum: `before` is the checksum of the preceding bytes.
pub fn crc16_continue(before: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(before, |crc: u16, byte| {
        let [high, _] = crc.to_be_bytes();
        crc << 8 ^ TABLE[usize::from(high ^ byte)]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_matches_the_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!((crc16(b""), crc16_continue(crc16(b"1234"), b"56789")), (0, 0x31c3));
    }
}
