package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/network/site"
)

// keptFile is the name of the file in the state directory that has what the node was told last.
const keptFile = "told.json"

const (
	// grace is how long the API server has to answer before the node goes by what it was told when it ran last.
	grace = 3 * time.Second
	// keepInterval is how often the file is written at most.
	keepInterval = time.Second
)

// kept is what a node is told by its cluster, and has told last: a node that starts while its API server is away goes by that, until
// the API server answers. So what was taken away meanwhile is gone then.
type kept struct {
	path string
	// self is the name of the node.
	self string
	// cluster tells what the API server says, as soon as it does.
	cluster func() (*site.Site, bool, error)
	began   time.Time
	// settled: the cluster has told something, or what was kept was told.
	settled bool
	latest  chan *site.Site
}

func newKept(dir, self string, cluster func() (*site.Site, bool, error)) *kept {
	return &kept{path: filepath.Join(dir, keptFile), self: self, cluster: cluster, began: time.Now(), latest: make(chan *site.Site, 1)}
}

// told returns what the node is told, and whether that differs from last time. It never waits for the API server.
func (k *kept) told() (*site.Site, bool, error) {
	s, changed, err := k.cluster()
	if changed && err == nil {
		k.settled = true
		select {
		case <-k.latest: // it was not written yet
		default:
		}
		k.latest <- s
		return s, true, nil
	}
	if err != nil || k.settled || time.Since(k.began) < grace {
		return nil, false, err
	}
	k.settled = true
	s, err = k.load()
	return s, s != nil, err
}

// load reads the file, nil if there is none.
func (k *kept) load() (*site.Site, error) {
	content, err := os.ReadFile(k.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var s *site.Site
	if err == nil {
		s, err = site.Parse(content)
	}
	if err == nil {
		err = here(s.Node(k.self))
	}
	if err != nil {
		return nil, fmt.Errorf("%s, which this node was told when it ran last, is ignored until the API server answers: %w", k.path, err)
	}
	return s, nil
}

// here returns an error unless a node has an address of this machine, which may have had another one then.
func here(self *site.Node) error {
	if self == nil {
		return errors.New("it does not name this node")
	}
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return fmt.Errorf("list the addresses of this node: %w", err)
	}
	if !slices.ContainsFunc(addresses, func(a net.Addr) bool {
		own, err := netip.ParsePrefix(a.String())
		return err == nil && own.Addr() == self.Address
	}) {
		return fmt.Errorf("this node does not have the address %s", self.Address)
	}
	return nil
}

// forget takes what was kept away.
func forget(dir string) error {
	if err := os.Remove(filepath.Join(dir, keptFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("forget what this node was told last: %w", err)
	}
	return nil
}

// run writes what is told until ctx ends.
func (k *kept) run(ctx context.Context) {
	for said := ""; ; {
		select {
		case <-ctx.Done():
			return
		case s := <-k.latest:
			problem := ""
			if err := k.keep(s); err != nil {
				problem = err.Error()
			}
			if problem != "" && problem != said {
				klog.FromContext(ctx).Info("What this node is told is not kept for when the API server is away", "err", problem)
			}
			said = problem
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(keepInterval):
		}
	}
}

// keep writes the file in one step.
func (k *kept) keep(s *site.Site) error {
	content, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encode what the node is told: %w", err)
	}
	file, err := os.CreateTemp(filepath.Dir(k.path), keptFile+"-*") // only its owner can read it
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	_, err = file.Write(content)
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	return os.Rename(file.Name(), k.path)
}
