// Package leader lets one of several replicas of a program work at a time.
package leader

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// Election says how the leading replica is found.
type Election struct {
	// Enabled is false for a program that has one replica: it always leads.
	Enabled bool
	// Namespace and Name are those of the Lease.
	Namespace, Name string
	// Duration is how long other replicas wait before they replace a silent
	// leader; at least 3 s.
	Duration time.Duration
}

// Run runs work while this replica leads. When ctx ends, work is stopped and
// waited for before the lease is given up, so that the next leader never works
// beside this one. Losing the lease stops work and is an error.
func Run(ctx context.Context, client kubernetes.Interface, e Election, work func(context.Context) error) error {
	if !e.Enabled {
		return work(ctx)
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("find host name: %w", err)
	}
	// The elector must outlive ctx until work has ended.
	electing, release := context.WithCancel(context.WithoutCancel(ctx))
	defer release()
	var mu sync.Mutex
	var leading, ended bool
	var failed error
	done := make(chan struct{})
	logger := klog.FromContext(ctx)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: e.Namespace, Name: e.Name},
			Client:     client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())},
		},
		LeaseDuration:   e.Duration,
		RenewDeadline:   e.Duration * 2 / 3,
		RetryPeriod:     max(e.Duration/8, 500*time.Millisecond),
		ReleaseOnCancel: true,
		Name:            e.Name,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(held context.Context) {
				defer close(done)
				mu.Lock()
				if ended {
					mu.Unlock()
					return
				}
				leading = true
				mu.Unlock()
				logger.Info("Leading")
				both, stop := context.WithCancel(held)
				defer stop()
				defer context.AfterFunc(ctx, stop)()
				failed = work(both)
				release()
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("prepare leader election: %w", err)
	}
	defer context.AfterFunc(ctx, func() {
		mu.Lock()
		defer mu.Unlock()
		ended = true
		if !leading {
			release()
		}
	})()
	elector.Run(electing)
	mu.Lock()
	led := leading
	mu.Unlock()
	if led {
		<-done
	}
	if ctx.Err() == nil && failed == nil {
		return errors.New("leadership was lost, since the lease could not be renewed in time: starting again")
	}
	return failed
}
