// Package rsync runs rsync at both ends of a move, over the movers' connection: Source.Send at the
// sender, Target.Receive at the receiver. rsync.go has the variants and their arguments; read it
// first. The sender's rsync starts this program as its remote shell (Shell), which passes its pipes
// to the mover and waits. The command that the sender's rsync wants to run at the other end is
// never sent: the receiver runs its own rsync with arguments that are fixed here, confined to the
// volume.
package rsync

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/lodestone-storage/lodestone/mover/content/blocks"
	"github.com/lodestone-storage/lodestone/mover/sandbox"
	"github.com/lodestone-storage/lodestone/mover/tree"
	"github.com/lodestone-storage/lodestone/mover/wire"
)

// program returns the path of rsync.
func program() string {
	if path, err := exec.LookPath("rsync"); err == nil {
		return path
	}
	return "/usr/bin/rsync"
}

// environment returns rsync's environment: nothing of the mover's own.
func environment() []string {
	return []string{"PATH=/usr/bin:/bin", "LC_ALL=C.UTF-8", "GOMAXPROCS=1"}
}

// Installed returns an error unless rsync is installed.
func Installed() error {
	if _, err := os.Stat(program()); err != nil {
		return fmt.Errorf("rsync is not installed beside the mover: %w", err)
	}
	return nil
}

// Variant is one of the ways in which rsync is run.
type Variant string

// The variants.
const (
	// Live skips large files, which package blocks copies in place: the application may write to
	// them.
	Live Variant = "live"
	// All copies all files.
	All Variant = "all"
	// Redo copies listed files whatever their sizes and times are.
	Redo Variant = "redo"
	// Prune only deletes: it makes room at a full target.
	Prune Variant = "prune"
)

// keepOptions are the options of every variant: they keep all that a copy must have.
// --modify-window=-1 compares times to the nanosecond: without it a change within one second that
// keeps the size is missed.
var keepOptions = append([]string{"-aHAXS", "--numeric-ids", "--modify-window=-1"}, xattrFilters()...)

// xattrFilters are filters of extended attributes. Attributes such as security.selinux belong to
// the machine: a mover must neither set nor remove them. Without filters rsync would do both.
func xattrFilters() (filters []string) {
	for _, kept := range tree.KeptXattrs() {
		if strings.HasSuffix(kept, ".") {
			kept += "**" // Names may have slashes.
		}
		filters = append(filters, "--filter=+x "+kept)
	}
	return append(filters, "--filter=-x **")
}

// excludeLostFound excludes the directory that file systems create in their roots.
const excludeLostFound = "--exclude=/lost+found"

// maxSizeOption limits Live to files smaller than those that package blocks copies.
var maxSizeOption = fmt.Sprintf("--max-size=%d", blocks.LargeFrom-1)

// senderArguments are the arguments of the sender's rsync, without the paths.
var senderArguments = map[Variant][]string{
	Live:  append(slices.Clone(keepOptions), "--delete", excludeLostFound, maxSizeOption),
	All:   append(slices.Clone(keepOptions), "--delete", excludeLostFound),
	Redo:  append(slices.Clone(keepOptions), "--ignore-times", "--from0"),
	Prune: append(slices.Clone(keepOptions), "--delete-before", "--existing", "--ignore-existing", excludeLostFound),
}

// receiverArguments returns the arguments of the receiver's rsync: those that the sender's rsync
// would request, and the filters of attributes. A sender sends filters only if it deletes, and the
// receiver trusts none.
func receiverArguments(variant Variant) []string {
	arguments := serverArguments[variant]
	return slices.Concat(arguments[:2], xattrFilters(), arguments[2:])
}

// serverArguments are the arguments that the sender's rsync would request for the receiver's; a
// test asks rsync whether they still are. The capabilities after "e." are those of rsync 3.2 and
// newer.
var serverArguments = map[Variant][]string{
	Live:  {"--server", "-lHogDtpAXrSe.iLsfxCIvu", maxSizeOption, "--delete", "-@-1", "--numeric-ids", ".", "."},
	All:   {"--server", "-lHogDtpAXrSe.iLsfxCIvu", "--delete", "-@-1", "--numeric-ids", ".", "."},
	Redo:  {"--server", "-lHogDtpAXIRSe.LsfxCIvu", "-@-1", "--numeric-ids", ".", "."},
	Prune: {"--server", "-lHogDtpAXrSe.iLsfxCIvu", "--delete-before", "-@-1", "--numeric-ids", "--ignore-existing", "--existing", ".", "."},
}

// ErrNoSpace means that the target has no room left.
var ErrNoSpace = errors.New("the target volume is full")

// Outcome is how a run of rsync ended at one end.
type Outcome struct {
	// Code is rsync's exit status; -1 if it was killed.
	Code int `json:"code"`
	// Complaints is what it wrote to its standard error, in one line.
	Complaints string `json:"complaints,omitempty"`
}

// Exit statuses of rsync that the mover handles differently.
const (
	someNotCopied = 23
	someVanished  = 24
)

// outcomeError makes one error of both ends' outcomes, or none. Live runs may skip files that
// changed or vanished meanwhile; the next run sees them.
func outcomeError(variant Variant, here, there Outcome) error {
	complaints := here.Complaints
	if complaints == "" {
		complaints = there.Complaints
	}
	both := here.Complaints + " " + there.Complaints
	if strings.Contains(both, "No space left on device") || strings.Contains(both, "Disk quota exceeded") {
		return fmt.Errorf("%w: %s", ErrNoSpace, complaints)
	}
	code := here.Code
	if code == 0 {
		code = there.Code
	}
	switch {
	case code == 0, code == someVanished && variant != All:
		return nil
	case code == someNotCopied && (variant == Live || variant == Redo) && onlyVanished(here.Complaints) && there.Complaints == "":
		return nil
	case complaints == "":
		complaints = "it gave no reason"
	}
	return fmt.Errorf("rsync ended with status %d: %s", code, complaints)
}

// onlyVanished reports whether all of a sender's complaints are about files that changed while it
// read them.
func onlyVanished(complaints string) bool {
	for line := range strings.SplitSeq(complaints, "; ") {
		if !strings.Contains(line, "No such file or directory (2)") && !strings.Contains(line, "vanished") &&
			!strings.HasPrefix(line, "rsync error: some files") {
			return false
		}
	}
	return complaints != ""
}

// onlyRootTime reports whether nothing went wrong but that the receiver may not set the time of the volume's root directory.
func onlyRootTime(here, there Outcome) bool {
	if here.Code != someNotCopied && (here.Code != 0 || there.Code != someNotCopied) {
		return false
	}
	found := false
	for line := range strings.SplitSeq(here.Complaints+"; "+there.Complaints, "; ") {
		switch {
		case strings.Contains(line, `failed to set times on "`) && strings.HasSuffix(line, `/.": Operation not permitted (1)`):
			found = true
		case line != "" && !strings.HasPrefix(line, "rsync error: some files"):
			return false
		}
	}
	return found
}

// Op is the name of the exchange in which rsync runs.
const Op = "rsync"

// Request is the body of that exchange's request.
type Request struct {
	Variant Variant `json:"variant"`
}

// ShellSubcommand is the first argument that makes the mover's program the remote shell of
// rsync: see Shell.
const ShellSubcommand = "shell"

// shellFD is the socket that the remote shell inherits.
const shellFD = 3

// Source is a volume to copy from.
type Source struct {
	// Self is the path of the mover's own program, Volume the directory to copy.
	Self, Volume string
	// Rootless says that the receiver is not root, and may not set the time of the volume's root directory.
	Rootless bool
	// Sent is called with how many bytes were sent to the receiver since the last call.
	Sent func(n int)
}

// Send runs rsync between the source and the receiver at the other end of conn. For Redo, list has
// the paths to copy, each terminated by NUL; else it is nil. After ErrNoSpace and other errors of
// rsync the connection can be used on; after wire.ErrLost it cannot.
func (s Source) Send(ctx context.Context, conn *wire.Conn, variant Variant, list io.Reader) error {
	sockets, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("make a socket for rsync's shell: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(sockets[0]), "shell"), os.NewFile(uintptr(sockets[1]), "rsync")
	defer ours.Close()
	arguments := slices.Clone(senderArguments[variant])
	arguments = append(arguments, "-e", "'"+strings.ReplaceAll(s.Self, "'", "''")+"' "+ShellSubcommand)
	if variant == Redo {
		arguments = append(arguments, "--files-from=-")
	}
	arguments = append(arguments, "./", "receiver:.")
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	cmd := sandbox.Command(ctx, s.Self, []sandbox.Access{{Path: s.Volume}, {Path: s.Self, Execute: true}}, program(), arguments...)
	sandbox.SetProcessGroup(cmd)
	complaints := &sandbox.Stderr{}
	cmd.Dir, cmd.Stdin, cmd.Stderr, cmd.ExtraFiles = s.Volume, list, complaints, []*os.File{theirs}
	cmd.Env = environment()
	if err := cmd.Start(); err != nil {
		theirs.Close()
		return fmt.Errorf("start rsync: %w", err)
	}
	theirs.Close()
	// Whatever happens, no process of it is left.
	exited := make(chan int, 1)
	from, to, err := receivePipes(int(ours.Fd()))
	go func() { exited <- sandbox.WaitForGroup(cmd) }()
	if err != nil {
		stop()
		code := <-exited
		return fmt.Errorf("start rsync: %w, with status %d: %s", err, code, complaints.Line())
	}
	defer from.Close()
	defer to.Close()
	var there Outcome
	err = conn.Do(wire.Call{
		Op: Op, Body: Request{Variant: variant}, Result: &there,
		Send: func(send func([]byte) error) error { return s.pump(from, send) },
		Data: func(payload []byte) error {
			// If rsync has ended, its status says why.
			_, _ = to.Write(payload)
			return nil
		},
		End: func() {
			_ = to.Close()
			// Rsync waits for its shell before it ends.
			_ = ours.Close()
		},
	})
	if err != nil {
		stop()
		_ = ours.Close()
		<-exited
		return err
	}
	_ = to.Close()
	_ = ours.Close()
	here := Outcome{Code: <-exited, Complaints: complaints.Line()}
	if s.Rootless && onlyRootTime(here, there) {
		return nil
	}
	return outcomeError(variant, here, there)
}

// pump sends rsync's output.
func (s Source) pump(from *os.File, send func([]byte) error) error {
	buffer := make([]byte, 128<<10)
	for {
		// The end of the pipe is the end of rsync, whose status says the rest.
		n, _ := from.Read(buffer)
		if n <= 0 {
			return nil
		}
		s.Sent(n)
		if err := send(buffer[:n]); err != nil {
			return err
		}
	}
}

// receivePipes waits until rsync's remote shell has sent its pipes.
func receivePipes(socket int) (from, to *os.File, err error) {
	control := make([]byte, unix.CmsgSpace(2*4))
	var n, controlled int
	for {
		n, controlled, _, _, err = unix.Recvmsg(socket, make([]byte, 1), control, unix.MSG_CMSG_CLOEXEC)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil || n == 0 {
		return nil, nil, errors.New("it ended before it began to copy")
	}
	messages, err := unix.ParseSocketControlMessage(control[:controlled])
	if err != nil || len(messages) != 1 {
		return nil, nil, errors.New("its shell gave no pipes")
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 2 {
		return nil, nil, errors.New("its shell gave no pipes")
	}
	for _, fd := range fds {
		if err := unix.SetNonblock(fd, true); err != nil {
			return nil, nil, err
		}
	}
	return os.NewFile(uintptr(fds[0]), "from rsync"), os.NewFile(uintptr(fds[1]), "to rsync"), nil
}

// Shell is the program that rsync starts as its remote shell: it passes its pipes to the mover, and
// ends when the mover has ended the exchange.
func Shell() error {
	if err := unix.Sendmsg(shellFD, []byte{1}, unix.UnixRights(0, 1), nil, 0); err != nil {
		return fmt.Errorf("give rsync's pipes to the mover: %w", err)
	}
	_ = unix.Close(0)
	_ = unix.Close(1)
	for {
		n, err := unix.Read(shellFD, make([]byte, 1))
		if n == 0 && !errors.Is(err, unix.EINTR) {
			return nil
		}
	}
}

// Target is a volume to copy to.
type Target struct {
	// Self is the path of the mover's own program, Volume the directory to copy to.
	Self, Volume string
}

// Receive runs the receiver's rsync for one exchange. The sender chooses only the variant. It
// returns when rsync and all its processes have ended.
func (t Target) Receive(ctx context.Context, in *wire.Incoming) (any, error) {
	var request Request
	if err := json.Unmarshal(in.Body, &request); err != nil || serverArguments[request.Variant] == nil {
		return nil, fmt.Errorf("the sender asked for an unknown variant of rsync: %.100s", in.Body)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	cmd := sandbox.Command(ctx, t.Self, []sandbox.Access{{Path: t.Volume, Write: true}}, program(), receiverArguments(request.Variant)...)
	sandbox.SetProcessGroup(cmd)
	complaints := &sandbox.Stderr{}
	cmd.Dir, cmd.Stderr, cmd.Env = t.Volume, complaints, environment()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start rsync: %w", err)
	}
	// StdoutPipe is not used: Wait would close it while it is being read.
	stdout, write, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start rsync: %w", err)
	}
	defer stdout.Close()
	cmd.Stdout = write
	err = cmd.Start()
	write.Close()
	if err != nil {
		return nil, fmt.Errorf("start rsync: %w", err)
	}
	answered := make(chan error, 1)
	go func() { answered <- fromRsync(stdout, in) }()
	lost := toRsync(in, stdin)
	if lost != nil {
		stop()
	}
	_ = stdin.Close()
	outcome := Outcome{Code: sandbox.WaitForGroup(cmd)}
	outcome.Complaints = complaints.Line()
	if err := <-answered; lost == nil {
		lost = err
	}
	return outcome, lost
}

// toRsync writes the sender's data to rsync, until the sender has no more.
func toRsync(in *wire.Incoming, to io.Writer) error {
	var broken bool
	for {
		payload, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		// If rsync has ended, its status says why; the remaining data is dropped.
		if !broken {
			_, err = to.Write(payload)
			broken = err != nil
		}
	}
}

// fromRsync sends rsync's output to the sender, and then its end.
func fromRsync(from io.Reader, in *wire.Incoming) error {
	buffer := make([]byte, 128<<10)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			if err := in.Send(buffer[:n]); err != nil {
				return err
			}
		}
		if err != nil {
			return in.SendEnd()
		}
	}
}
