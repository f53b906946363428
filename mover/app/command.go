// Package app is the mover as a program: its commands and flags (NewCommand, RunHelper), and Send
// and Receive, which create the parts of the other packages and run one end of a move. Read run.go
// first.
package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json
	"k8s.io/component-base/version"

	"github.com/lodestone-storage/lodestone/mover/content/rsync"
	"github.com/lodestone-storage/lodestone/mover/sandbox"
	"github.com/lodestone-storage/lodestone/mover/send"
	"github.com/lodestone-storage/lodestone/pkg/program/command"
)

// RunHelper runs a subcommand with which the mover starts itself: to confine rsync, or to be
// rsync's remote shell. It returns false if the arguments name none.
func RunHelper(arguments []string) bool {
	if len(arguments) == 0 {
		return false
	}
	var err error
	switch arguments[0] {
	case sandbox.ConfineSubcommand:
		err = sandbox.RunConfineSubcommand(arguments[1:])
	case rsync.ShellSubcommand:
		err = rsync.Shell()
	default:
		return false
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "lodestone-mover:", err)
		os.Exit(1)
	}
	return true
}

// NewCommand returns the command of the program.
func NewCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "lodestone-mover",
		Short: "One end of a volume's move",
		Long: `lodestone-mover copies a volume to another cluster while its application runs.
One of them reads the source volume, one writes the target volume. They talk over
TLS 1.3 with keys made for this move alone, and hold no credential of a cluster.`,
		Version: version.Get().GitVersion,
	}
	sending := &SendOptions{Options: NewOptions()}
	send := &cobra.Command{
		Use:   "send",
		Short: "Read the volume, and do what the controller of the move says",
	}
	sending.AddFlags(send.Flags())
	cmd.AddCommand(command.Complete(send, sending.Logs, sending.Validate, func(ctx context.Context) error {
		return Send(ctx, sending)
	}))
	receiving := &ReceiveOptions{Options: NewOptions()}
	receive := &cobra.Command{
		Use:   "receive",
		Short: "Write the volume as the sender says",
	}
	receiving.AddFlags(receive.Flags())
	cmd.AddCommand(command.Complete(receive, receiving.Logs, receiving.Validate, func(ctx context.Context) error {
		return Receive(ctx, receiving)
	}))
	return cmd
}

// Options are the flags that both ends have.
type Options struct {
	Move    string
	Keys    string
	Volume  string
	Scratch string
	// ScratchLimit is in bytes.
	ScratchLimit uint64
	// Repository is the mount point of the claim that has the repository, if one has.
	Repository string
	// StoreFrom is in bytes.
	StoreFrom int64
	Block     bool
	// Rootless allows that this process is not root.
	Rootless bool
	Logs     *logsapi.LoggingConfiguration
}

// NewOptions returns the defaults.
func NewOptions() Options {
	return Options{Keys: "/keys", Volume: "/volume", Scratch: "/scratch", Repository: "/repository", StoreFrom: send.StoreFrom,
		Logs: logsapi.NewLoggingConfiguration()}
}

// AddFlags adds the flags to a flag set.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.Move, "move", o.Move, "UID of the move, which the keys are bound to")
	flags.StringVar(&o.Keys, "keys", o.Keys, "folder of ca.crt, tls.crt and tls.key, made for this move and this end")
	flags.StringVar(&o.Volume, "volume", o.Volume, "directory that the volume is mounted at")
	flags.BoolVar(&o.Block, "block", o.Block, "the volume is a block device at --volume, and not a directory")
	flags.BoolVar(&o.Rootless, "rootless", o.Rootless, "run as another user than root, who reads all of the volume, and owns all that is "+
		"written; what that user cannot keep is refused")
	flags.StringVar(&o.Scratch, "scratch", o.Scratch, "directory for manifests, outside the volume")
	flags.Uint64Var(&o.ScratchLimit, "scratch-limit", o.ScratchLimit, "how many bytes may be kept in --scratch; 0: what its disk has")
	flags.StringVar(&o.Repository, "repository", o.Repository, "directory at which the claim is mounted that --keys may name for the "+
		"content to travel through")
	flags.Int64Var(&o.StoreFrom, "store-from", o.StoreFrom, "from how many bytes on the sender carries content through the object store or "+
		"the claim that --keys may name; less goes to the receiver")
	logsapi.AddFlags(o.Logs, flags)
}

// Validate returns an error that joins all that is wrong with the options.
func (o *Options) Validate() error {
	var errs []error
	if o.Move == "" {
		errs = append(errs, errors.New("--move is missing: give the UID of the move"))
	}
	directories := map[string]string{"--volume": o.Volume, "--scratch": o.Scratch}
	if o.Block {
		delete(directories, "--volume")
		if s, err := os.Stat(o.Volume); err != nil || s.IsDir() || !filepath.IsAbs(o.Volume) {
			errs = append(errs, fmt.Errorf("--volume=%s is not the absolute path of a block device", o.Volume))
		}
	}
	for name, path := range directories {
		if s, err := os.Stat(path); err != nil || !s.IsDir() || !filepath.IsAbs(path) {
			errs = append(errs, fmt.Errorf("%s=%s is not the absolute path of a directory", name, path))
		}
	}
	if strings.HasPrefix(filepath.Clean(o.Scratch)+"/", filepath.Clean(o.Volume)+"/") {
		errs = append(errs, errors.New("--scratch is inside --volume, and would be copied"))
	}
	return errors.Join(errs...)
}

// scratch returns the directory in which the mover at an end stores manifests.
func (o *Options) scratch(end string) sandbox.Scratch {
	return sandbox.Scratch{Path: o.Scratch, Limit: o.ScratchLimit, Owner: "the mover at the " + end}
}

// SendOptions are the flags of the end that reads.
type SendOptions struct {
	Options
	Snapshot       bool
	Peer           string
	DataAddress    string
	ControlAddress string
}

// AddFlags adds the flags to a flag set.
func (o *SendOptions) AddFlags(flags *pflag.FlagSet) {
	o.Options.AddFlags(flags)
	flags.BoolVar(&o.Snapshot, "snapshot", o.Snapshot, "the volume was made of a snapshot of the source, which another mover reads later")
	flags.StringVar(&o.Peer, "peer", o.Peer, "address of the receiver to dial; empty: dial it where the controller says, and wait for "+
		"somebody to join a connection to --data-address with one to the receiver")
	flags.StringVar(&o.DataAddress, "data-address", ":8440", "address to wait at when there is no --peer")
	flags.StringVar(&o.ControlAddress, "control-address", ":8441", "address that serves the controller of the move")
}

// ReceiveOptions are the flags of the end that writes.
type ReceiveOptions struct {
	Options
	NoSnapshot  bool
	DataAddress string
}

// AddFlags adds the flags to a flag set.
func (o *ReceiveOptions) AddFlags(flags *pflag.FlagSet) {
	o.Options.AddFlags(flags)
	flags.BoolVar(&o.NoSnapshot, "no-snapshot", o.NoSnapshot, "refuse senders that were started with --snapshot, also before the source "+
		"itself is read")
	flags.StringVar(&o.DataAddress, "data-address", ":8440", "address to wait at for the sender")
}
