//go:build !linux

package testbed

import "syscall"

// childAttributes keep the terminal's interrupt away from the children, which are
// stopped in order instead. Only Linux can kill them when we are killed.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true}
}
