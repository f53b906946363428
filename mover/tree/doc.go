// Package tree describes what is in a volume, so that two copies of it can be
// compared and a later state can be told from an earlier one.
//
// [Scan] walks a directory and writes a manifest: one record for each entry, in
// canonical order, with all that a copy must keep and the BLAKE3 hashes of the
// contents, block by block. The root of a manifest is a hash over everything in it
// that a copy must keep; docs/move-verification.md defines it to the byte, so
// that another program can compute it. Inode numbers and change times are in the
// manifest too, but not in the root: they differ at the target.
//
// With an earlier manifest, Scan reads again only what may have changed since.
// [Changes] lists how one manifest differs from an earlier one of the same volume,
// [Compare] how two copies differ, in words.
//
// No function keeps the tree in memory: entries stream, sorting spills into a
// scratch directory. The package is for Linux. A manifest and a scratch directory
// must not be inside the volume.
package tree
