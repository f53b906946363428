package confine

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// Word is the first argument that makes the mover's program confine itself and
// become another program.
const Word = "confined"

// Programs are where programs and libraries are, in an image and on a machine.
var Programs = []Access{
	{Path: "/usr", Execute: true}, {Path: "/lib", Execute: true}, {Path: "/lib64", Execute: true}, {Path: "/bin", Execute: true},
	{Path: "/etc"}, {Path: "/dev/null", Write: true}, {Path: "/proc/self", Write: false},
}

// Command makes a command that runs a program confined to access and Programs. Self
// is the mover's own program. Where the kernel has no Landlock, the program runs in
// the container's file system as it is; Version tells.
func Command(ctx context.Context, self string, access []Access, program string, arguments ...string) *exec.Cmd {
	if _, err := Version(); err != nil {
		return exec.CommandContext(ctx, program, arguments...)
	}
	words := []string{Word}
	for _, a := range access {
		mode := "r"
		if a.Write {
			mode = "w"
		} else if a.Execute {
			mode = "x"
		}
		words = append(words, mode+":"+a.Path)
	}
	words = append(words, "--", program)
	return exec.CommandContext(ctx, self, append(words, arguments...)...)
}

// Become does what the arguments after Word, made by Command, say. It returns only
// with an error.
func Become(arguments []string) error {
	access := Programs
	for i, argument := range arguments {
		if argument == "--" && len(arguments) > i+1 {
			return Exec(arguments[i+1], arguments[i+1:], os.Environ(), access)
		}
		mode, path, found := strings.Cut(argument, ":")
		if !found {
			break
		}
		access = append(access, Access{Path: path, Write: mode == "w", Execute: mode == "x"})
	}
	return fmt.Errorf("%s: expected rules, --, and a program", Word)
}
