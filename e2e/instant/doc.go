// Package instant is a real storage provisioner whose volumes take no time and no
// space, for test beds. It stands for the CSI driver of a real storage class: its
// volumes have a driver, a handle, attributes, mount options and a nodeAffinity of
// their own, and it keeps account of them, so that a test can tell whether a real
// volume is really gone. What it does badly can be set while it runs, see [Behavior].
package instant
