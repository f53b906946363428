package app

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/klog/v2"

	"github.com/lodestone-storage/lodestone/mover/restic"
	"github.com/lodestone-storage/lodestone/mover/send"
	"github.com/lodestone-storage/lodestone/pkg/moverepository"
)

// store is the object store or the claim that the keys of this end are for; nil if they
// are for none.
func (o *Options) store(self string) (*restic.Store, error) {
	ticket, err := moverepository.Read(o.Keys)
	if ticket == nil || err != nil {
		return nil, err
	}
	if err := restic.Installed(); err != nil {
		return nil, err
	}
	store := &restic.Store{Ticket: *ticket, Self: self, Temporary: filepath.Join(o.Scratch, "restic"), Root: o.Repository}
	if len(ticket.Authority) > 0 {
		store.Authority = filepath.Join(o.Keys, moverepository.AuthorityFile)
	}
	if err := os.RemoveAll(store.Temporary); err != nil {
		return nil, fmt.Errorf("remove what an earlier life of restic has left: %w", err)
	}
	return store, nil
}

// leaveTimeout is how long the sender may take to leave nothing in the repository. Its
// pod has a little longer.
const leaveTimeout = 25 * time.Second

// leave has a sender that ends leave nothing in the repository.
func leave(ctx context.Context, sender *send.Sender) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer stop()
	if err := sender.Leave(ctx); err != nil {
		klog.FromContext(ctx).Error(err, "Something of this move may be left in its repository")
	}
}
