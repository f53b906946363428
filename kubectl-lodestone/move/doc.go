// Package move moves the volumes of claims to another place, and says how that
// goes. The provisioner does the work: the command makes a VolumeMove and follows
// it, so that ending the command ends nothing.
package move
