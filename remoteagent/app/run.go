package app

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/controller"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/program"
	"github.com/lodestone-storage/lodestone/remoteagent/confinement"
	"github.com/lodestone-storage/lodestone/remoteagent/healing"
	"github.com/lodestone-storage/lodestone/remoteagent/namespaces"
	"github.com/lodestone-storage/lodestone/remoteagent/offer"
	"github.com/lodestone-storage/lodestone/remoteagent/pods"
	"github.com/lodestone-storage/lodestone/remoteagent/probes"
	"github.com/lodestone-storage/lodestone/remoteagent/sources"
	"github.com/lodestone-storage/lodestone/remoteagent/tenancy"
)

// Run runs the remote agent until ctx ends, and then returns nil once every step that was begun is
// done and leadership is given up. An error means that it could not start or lost its leadership.
func Run(ctx context.Context, config *Config) error {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientscheme.AddToScheme(scheme), remotev1alpha1.AddToScheme(scheme)); err != nil {
		return fmt.Errorf("register types: %w", err)
	}
	process, err := program.Start(ctx, config.Remote, config.Options.Options,
		program.Settings{Name: name, QPS: 200, Burst: 400, Scheme: scheme})
	if err != nil {
		return err
	}
	defer process.Stop()
	client, recorder := process.Client, process.Recorder
	objects, err := clients.NewRemoteClient(process.Access)
	if err != nil {
		return err
	}
	metadataClient, err := metadata.NewForConfig(process.Access)
	if err != nil {
		return fmt.Errorf("make client of objects' metadata: %w", err)
	}
	podMetrics := pods.NewMetrics(process.Metrics)
	healingMetrics := healing.NewMetrics(process.Metrics)

	confined, err := confinement.New(client, process.Access)
	if err != nil {
		return err
	}
	from := sources.New(client, objects)
	heartbeats := tenancy.NewHeartbeats(config.AwayAfter)
	leases := tenancy.NewLeases(client, heartbeats, from)
	requests := namespaces.New(namespaces.Config{
		Client: client, Metadata: metadataClient, Remote: objects, Sources: from, Recorder: recorder, Confined: confined.Refusal,
		Healing: func(namespace string) bool { return healing.Pending(from, namespace) },
	})
	homes := tenancy.New(tenancy.Config{
		Client: client, Remote: objects, Sources: from, Confined: confined.Refusal, Presence: heartbeats.Presence, Lease: leases.State,
		Forget: leases.Forget,
		DeleteIfEmpty: func(ctx context.Context, namespace *corev1.Namespace) error {
			_, err := requests.DeleteIfEmpty(ctx, namespace)
			return err
		},
	})
	shadowPods := pods.New(pods.Config{
		Client: client, Remote: objects, Sources: from, Recorder: recorder, Metrics: podMetrics, Presence: heartbeats.Presence,
		Lease: leases.State, SettleTime: config.SettleTime, Workers: config.Workers,
	})
	offers := offer.New(objects, from)
	probing := probes.New(objects, from)
	healer := healing.New(healing.Config{Client: client, Sources: from, Recorder: recorder, Metrics: healingMetrics})
	leases.Subscribe(homes.Requeue)
	leases.Subscribe(shadowPods.RequeueHome)
	// Every replica watches them, so that the next leader knows who is connected.
	if err := watchHeartbeats(from, heartbeats, homes); err != nil {
		return err
	}

	// The informers have a context of their own, so that every return from this function ends them.
	// With ctx, Shutdown would wait for ever after an error.
	watching, stopWatching := context.WithCancel(ctx)
	from.Start(watching)
	defer func() { stopWatching(); from.Shutdown() }()
	process.Probes.WaitFor("the cluster's caches")
	if !cache.WaitForCacheSync(ctx.Done(), from.Synced()...) {
		return nil
	}
	process.Probes.Ready()
	return process.Lead(ctx, func(ctx context.Context) error {
		// The handlers are added only now: the queues of a replica that does not lead are never
		// emptied.
		if err := errors.Join(homes.Watch(), requests.Watch(), shadowPods.Watch(), offers.Watch(), probing.Watch(), healer.Watch()); err != nil {
			return err
		}
		var working sync.WaitGroup
		for _, work := range []func(context.Context){homes.Run, leases.Run, requests.Run, shadowPods.Run, offers.Run, probing.Run,
			healer.Run} {
			working.Go(func() { work(ctx) })
		}
		working.Wait()
		return nil
	})
}

// watchHeartbeats passes changes of Leases to heartbeats, and queues the HomeCluster if they change
// whether it counts as connected.
func watchHeartbeats(from *sources.Sources, heartbeats *tenancy.Heartbeats, homes *tenancy.Controller) error {
	return controller.OnEach(from.Leases, func(lease *coordinationv1.Lease) {
		id, ok := strings.CutPrefix(lease.Namespace, keys.TenantPrefix)
		if !ok {
			return
		}
		before, _ := heartbeats.Presence(id)
		heartbeats.Observe(id, lease)
		// A Lease that was deleted is made again.
		gone := controller.Get[coordinationv1.Lease](from.Leases, lease.Namespace+"/"+lease.Name) == nil
		if now, _ := heartbeats.Presence(id); now != before || gone {
			homes.Requeue(id)
		}
	})
}
