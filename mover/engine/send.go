package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/lodestone-storage/lodestone/mover/confine"
	"github.com/lodestone-storage/lodestone/mover/process"
	"github.com/lodestone-storage/lodestone/mover/stream"
)

// Op is the name of the exchange that carries rsync.
const Op = "rsync"

// Asked is the body of that exchange's request.
type Asked struct {
	Variant Variant `json:"variant"`
}

// ShellWord is the first argument that makes the mover's program the remote shell of
// rsync: see Shell.
const ShellWord = "shell"

// shellFD is the socket that the remote shell inherits.
const shellFD = 3

// Source is a volume to copy from.
type Source struct {
	// Self is the mover's own program, Volume the directory to copy.
	Self, Volume string
	// Sent is told how many bytes went to the receiver.
	Sent func(n int)
}

// Send runs rsync between the source and the receiver at the other end of conn. List
// holds, for Redo, the paths to copy, each ended by NUL; else it is nil. ErrNoSpace
// and other reasons of rsync leave the connection as it was; stream.ErrLost does not.
func (s Source) Send(ctx context.Context, conn *stream.Conn, variant Variant, list io.Reader) error {
	sockets, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("make a socket for rsync's shell: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(sockets[0]), "shell"), os.NewFile(uintptr(sockets[1]), "rsync")
	defer ours.Close()
	arguments := slices.Clone(client[variant])
	arguments = append(arguments, "-e", "'"+strings.ReplaceAll(s.Self, "'", "''")+"' "+ShellWord)
	if variant == Redo {
		arguments = append(arguments, "--files-from=-")
	}
	arguments = append(arguments, "./", "receiver:.")
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	cmd := confine.Command(ctx, s.Self, []confine.Access{{Path: s.Volume}, {Path: s.Self, Execute: true}}, program(), arguments...)
	process.OwnGroup(cmd)
	complaints := &process.Complaints{}
	cmd.Dir, cmd.Stdin, cmd.Stderr, cmd.ExtraFiles = s.Volume, list, complaints, []*os.File{theirs}
	cmd.Env = environment()
	if err := cmd.Start(); err != nil {
		theirs.Close()
		return fmt.Errorf("start rsync: %w", err)
	}
	theirs.Close()
	// Whatever happens, nothing of it is left behind.
	exited := make(chan int, 1)
	from, to, err := receivePipes(int(ours.Fd()))
	go func() { exited <- process.Wait(cmd) }()
	if err != nil {
		stop()
		code := <-exited
		return fmt.Errorf("start rsync: %w, with status %d: %s", err, code, complaints.Words())
	}
	defer from.Close()
	defer to.Close()
	var there Outcome
	err = conn.Do(stream.Call{
		Op: Op, Body: Asked{Variant: variant}, Result: &there,
		Send: func(send func([]byte) error) error { return s.pump(from, send) },
		Data: func(payload []byte) error {
			// An rsync that has ended says why in its status.
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
	return judge(variant, Outcome{Code: <-exited, Complaints: complaints.Words()}, there)
}

// pump sends what rsync writes.
func (s Source) pump(from *os.File, send func([]byte) error) error {
	buffer := make([]byte, 128<<10)
	for {
		// The end of its pipe is the end of rsync, whose status tells the rest.
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

// receivePipes waits for the pipes of rsync's remote shell.
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

// Shell is what rsync starts as its remote shell: it gives its pipes to the mover,
// and ends when the mover has ended the exchange.
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
