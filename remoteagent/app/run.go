package app

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/leader"
	"github.com/lodestone-storage/lodestone/pkg/probes"
	"github.com/lodestone-storage/lodestone/pkg/remoteapi"
	"github.com/lodestone-storage/lodestone/remoteagent/healing"
	"github.com/lodestone-storage/lodestone/remoteagent/heartbeat"
	"github.com/lodestone-storage/lodestone/remoteagent/namespaces"
	"github.com/lodestone-storage/lodestone/remoteagent/offer"
	"github.com/lodestone-storage/lodestone/remoteagent/pods"
	"github.com/lodestone-storage/lodestone/remoteagent/sources"
	"github.com/lodestone-storage/lodestone/remoteagent/tenancy"
)

// Run runs the remote agent until ctx ends, and then returns nil once every step
// that was begun is done and leadership is given up. An error means that it
// could not start or lost its leadership.
func Run(ctx context.Context, config *Config) error {
	remote := prepared(config.Remote)
	client, err := kubernetes.NewForConfig(remote)
	if err != nil {
		return fmt.Errorf("make client of the cluster: %w", err)
	}
	// A burst of pods must not hold up the lease.
	election, err := kubernetes.NewForConfig(forElection(remote))
	if err != nil {
		return fmt.Errorf("make client for the lease: %w", err)
	}
	objects, err := remoteapi.NewClient(remote)
	if err != nil {
		return err
	}
	metadataClient, err := metadata.NewForConfig(remote)
	if err != nil {
		return fmt.Errorf("make client of objects' metadata: %w", err)
	}
	registry, state := prometheus.NewRegistry(), probes.New()
	stopHTTP, err := state.Serve(ctx, config.HTTPAddress, registry)
	if err != nil {
		return err
	}
	defer stopHTTP()
	counts, err := pods.NewMetrics(registry)
	if err != nil {
		return err
	}
	mended, err := healing.NewMetrics(registry)
	if err != nil {
		return err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientscheme.AddToScheme(scheme), remotev1alpha1.AddToScheme(scheme)); err != nil {
		return fmt.Errorf("register types: %w", err)
	}
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&corev1client.EventSinkImpl{Interface: client.CoreV1().Events("")})
	recorder := broadcaster.NewRecorder(scheme, corev1.EventSource{Component: userAgent})

	from := sources.New(client, objects)
	beats := heartbeat.New(config.AwayAfter)
	asked := namespaces.New(namespaces.Config{
		Client: client, Metadata: metadataClient, Remote: objects, Sources: from, Recorder: recorder,
		Healing: func(namespace string) bool { return healing.Waits(from, namespace) },
	})
	homes := tenancy.New(tenancy.Config{
		Client: client, Remote: objects, Sources: from, Presence: beats.Presence, Forget: beats.Forget,
		DropNamespace: func(ctx context.Context, namespace *corev1.Namespace) error {
			_, err := asked.Drop(ctx, namespace)
			return err
		},
	})
	running := pods.New(pods.Config{
		Client: client, Remote: objects, Sources: from, Recorder: recorder, Metrics: counts, Presence: beats.Presence,
		SettleTime: config.SettleTime, Workers: config.Workers,
	})
	offers := offer.New(objects, from)
	claims := healing.New(healing.Config{Client: client, Sources: from, Recorder: recorder, Metrics: mended})
	// Every replica listens, so that the next leader knows who is connected.
	if err := listen(from, beats, homes); err != nil {
		return err
	}

	// Not ctx: whatever ends this function ends the watches, or it would wait for
	// them for ever.
	watching, stopWatching := context.WithCancel(ctx)
	from.Start(watching)
	defer func() { stopWatching(); from.Shutdown() }()
	state.WaitFor("the cluster's caches")
	if !cache.WaitForCacheSync(ctx.Done(), from.Synced()...) {
		return nil
	}
	state.Ready()
	return leader.Run(ctx, election, leader.Election{
		Enabled: config.LeaderElect, Namespace: config.Namespace, Name: "lodestone-remote-agent", Duration: config.LeaseDuration,
	}, func(ctx context.Context) error {
		// Only now: while another replica leads nobody empties the queues.
		if err := errors.Join(homes.Watch(), asked.Watch(), running.Watch(), offers.Watch(), claims.Watch()); err != nil {
			return err
		}
		var working sync.WaitGroup
		for _, work := range []func(context.Context){homes.Run, asked.Run, running.Run, offers.Run, claims.Run} {
			working.Go(func() { work(ctx) })
		}
		working.Wait()
		return nil
	})
}

// listen takes note of heartbeats.
func listen(from *sources.Sources, beats *heartbeat.Tracker, homes *tenancy.Controller) error {
	return sources.On(from.Leases, func(_, lease *coordinationv1.Lease) {
		id, ok := strings.CutPrefix(lease.Namespace, keys.TenantPrefix)
		if !ok {
			return
		}
		before, _ := beats.Presence(id)
		beats.Observe(id, lease)
		// One that is gone is made again.
		gone := sources.Get[coordinationv1.Lease](from.Leases, lease.Namespace+"/"+lease.Name) == nil
		if now, _ := beats.Presence(id); now != before || gone {
			homes.Poke(id)
		}
	})
}
