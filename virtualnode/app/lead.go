package app

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

// leaseName is the name of the Lease of the leading replica.
const leaseName = "lodestone-virtualnode"

// lead runs work while this replica leads. When ctx ends, work is stopped and
// waited for before the lease is given up, so that the next leader never works
// beside this one. Losing the lease stops work and is an error.
func lead(ctx context.Context, client kubernetes.Interface, config *Config, homeID string, work func(context.Context) error) error {
	if !config.LeaderElect {
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
	logger := klog.FromContext(ctx).WithValues("cluster", homeID)
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: config.Namespace, Name: leaseName},
			Client:     client.CoordinationV1(),
			LockConfig: resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())},
		},
		LeaseDuration:   config.LeaseDuration,
		RenewDeadline:   config.LeaseDuration * 2 / 3,
		RetryPeriod:     max(config.LeaseDuration/8, 500*time.Millisecond),
		ReleaseOnCancel: true,
		Name:            leaseName,
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
