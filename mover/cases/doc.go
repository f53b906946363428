// Package cases holds what a copy of a volume must survive: files of every kind,
// changes between and during passes, a wrong mount, a spoilt disk. Each case builds
// its volume in a directory and says what must hold afterwards; [Run] takes one
// through an [Engine] and judges the result.
//
// The cases need root for devices, owners and trusted attributes, and a file system
// that keeps them, such as ext4.
package cases
