// Package app is the mover as a program: its flags, and the one place where its
// parts are put together.
package app

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json

	"github.com/lodestone-storage/lodestone/mover/scratch"
	"github.com/lodestone-storage/lodestone/mover/send"
)

// Options are the flags of both ends.
type Options struct {
	Move    string
	Keys    string
	Volume  string
	Scratch string
	// ScratchLimit is in bytes.
	ScratchLimit uint64
	// Repository is where the claim is mounted that the keys may be for.
	Repository string
	// StoreFrom is in bytes.
	StoreFrom int64
	Block     bool
	Logs      *logsapi.LoggingConfiguration
}

// NewOptions returns the defaults.
func NewOptions() Options {
	return Options{Keys: "/keys", Volume: "/volume", Scratch: "/scratch", Repository: "/repository", StoreFrom: send.StoreFrom, Logs: logsapi.NewLoggingConfiguration()}
}

// AddFlags adds the flags to a flag set.
func (o *Options) AddFlags(flags *pflag.FlagSet) {
	flags.StringVar(&o.Move, "move", o.Move, "UID of the move, which the keys are bound to")
	flags.StringVar(&o.Keys, "keys", o.Keys, "folder of ca.crt, tls.crt and tls.key, made for this move and this end")
	flags.StringVar(&o.Volume, "volume", o.Volume, "directory that the volume is mounted at")
	flags.BoolVar(&o.Block, "block", o.Block, "the volume is a block device at --volume, and not a directory")
	flags.StringVar(&o.Scratch, "scratch", o.Scratch, "directory for manifests, outside the volume")
	flags.Uint64Var(&o.ScratchLimit, "scratch-limit", o.ScratchLimit, "how many bytes may be kept in --scratch; 0: what its disk has")
	flags.StringVar(&o.Repository, "repository", o.Repository, "directory at which the claim is mounted that --keys may name for the content to travel through")
	flags.Int64Var(&o.StoreFrom, "store-from", o.StoreFrom, "from how many bytes on the sender carries content through the object store or the claim that --keys may name; less goes to the receiver")
	logsapi.AddFlags(o.Logs, flags)
}

// Validate returns all that is wrong with the options.
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

// scratch is where the mover at an end keeps manifests.
func (o *Options) scratch(end string) scratch.Folder {
	return scratch.Folder{Path: o.Scratch, Limit: o.ScratchLimit, Whose: "the mover at the " + end}
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
	flags.StringVar(&o.Peer, "peer", o.Peer, "address of the receiver to dial; empty: dial it where the controller says, and wait for somebody to join a connection to --data-address with one to the receiver")
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
	flags.BoolVar(&o.NoSnapshot, "no-snapshot", o.NoSnapshot, "refuse senders that were started with --snapshot, also before the source itself is read")
	flags.StringVar(&o.DataAddress, "data-address", ":8440", "address to wait at for the sender")
}
