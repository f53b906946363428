package replicate

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/dynamic"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/replica"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
)

// runner creates and follows the VolumeReplicas of one command.
type runner struct {
	*Options
	home      *cli.Cluster
	streams   genericiooptions.IOStreams
	namespace string
	// many says that a workload was named: claims that have a copy there are passed over, and what is written is a List.
	many bool
	// made are the VolumeReplicas, as they were last read.
	made []v1alpha1.VolumeReplica
}

// wanted is a VolumeReplica that is to be made.
type wanted struct {
	object *v1alpha1.VolumeReplica
	facts  facts
	// real is the class of the copy, nil if that is not known.
	real *v1alpha1.OfferedClass
}

// run makes a VolumeReplica for each claim, after a check of all of them, so that a mistake changes nothing.
func (r *runner) run(ctx context.Context, claims []string) error {
	shared, err := r.read(ctx)
	if err != nil {
		return err
	}
	var all []wanted
	for _, name := range claims {
		f, err := r.readClaim(ctx, shared, name)
		if err != nil {
			return err
		}
		if has := f.has(); has != nil && r.many {
			fmt.Fprintf(r.streams.ErrOut, "%s: nothing to do, VolumeReplica %s keeps a copy there\n", name, has.Name)
			continue
		}
		why, real := f.forbids(r.Class)
		if why != "" {
			return cli.Refuse("%s", why)
		}
		object, err := r.object(r.namespace, name)
		if err != nil {
			return err
		}
		all = append(all, wanted{object, f, real})
	}
	err = r.createAll(ctx, all)
	switch {
	case r.Output.Format != "":
		if unwritten := r.write(); err == nil {
			err = unwritten
		}
	case err == nil && len(all) == 0:
		_, err = fmt.Fprintln(r.streams.Out, "nothing to do: all claims have a copy there")
	}
	return err
}

// readable says whether a request was answered; what the user may not read, or is not there, is not known.
func (r *runner) readable(doing string, err error) (bool, error) {
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, r.home.Explain(doing, err)
}

// read reads what all claims share.
func (r *runner) read(ctx context.Context) (facts, error) {
	f := facts{to: r.To}
	list, err := r.home.Moves.Replicas(r.namespace).List(ctx, metav1.ListOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return f, tooOld(r.home)
	case err != nil && !apierrors.IsForbidden(err):
		return f, r.home.Explain("list VolumeReplicas -n "+r.namespace, err)
	case err == nil:
		f.replicas = list.Items
	}
	namespace, err := r.home.Client.CoreV1().Namespaces().Get(ctx, r.namespace, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return f, r.home.RequireNamespace(ctx, r.namespace)
	}
	if ok, err := r.readable("get namespace "+r.namespace, err); err != nil {
		return f, err
	} else if ok {
		f.namespace = namespace
	}
	if r.To == keys.Home {
		return f, r.readHome(ctx, &f)
	}
	remote, err := r.home.Remotes.Get(ctx, r.To, metav1.GetOptions{})
	if ok, err := r.readable("get RemoteCluster "+r.To, err); err != nil {
		return f, err
	} else if ok {
		f.remote = remote
		f.offered = remote.Status.StorageClasses
	}
	return f, nil
}

// readHome reads the classes of home.
func (r *runner) readHome(ctx context.Context, f *facts) error {
	list, err := r.home.Client.StorageV1().StorageClasses().List(ctx, metav1.ListOptions{})
	if ok, err := r.readable("list storageclasses", err); !ok {
		return err
	}
	var classes []*storagev1.StorageClass
	for i := range list.Items {
		classes = append(classes, &list.Items[i])
	}
	f.offered = virtualclass.Offer(classes)
	client, err := dynamic.NewForConfig(r.home.Config)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	snapshots, err := client.Resource(volumesnapshot.Classes).List(ctx, metav1.ListOptions{})
	if apierrors.IsNotFound(err) {
		f.snapshotsKnown = true // home has no snapshots at all
		return nil
	}
	if ok, err := r.readable("list volumesnapshotclasses", err); !ok {
		return err
	}
	f.snapshotsKnown = true
	for i := range snapshots.Items {
		if class, err := volumesnapshot.Read[volumesnapshot.Class](&snapshots.Items[i]); err == nil {
			f.snapshots = append(f.snapshots, *class)
		}
	}
	return nil
}

// readClaim reads a claim, its class and its volume.
func (r *runner) readClaim(ctx context.Context, f facts, name string) (facts, error) {
	claim, err := r.home.Claim(ctx, r.namespace, name)
	if err != nil {
		return f, err
	}
	f.claim = claim
	if class := claim.Spec.StorageClassName; class != nil && *class != "" {
		found, err := r.home.Client.StorageV1().StorageClasses().Get(ctx, *class, metav1.GetOptions{})
		if ok, err := r.readable("get storageclass "+*class, err); err != nil {
			return f, err
		} else if ok {
			f.class = found
		}
	}
	if claim.Spec.VolumeName != "" {
		volume, err := r.home.Client.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
		if ok, err := r.readable("get persistentvolume "+claim.Spec.VolumeName, err); err != nil {
			return f, err
		} else if ok {
			f.volume = volume
		}
	}
	return f, nil
}

// tooOld is the error for a home whose API server has no VolumeReplicas.
func tooOld(home *cli.Cluster) error {
	served, err := home.Serves(v1alpha1.GroupVersion.String(), "remoteclusters")
	if err != nil {
		return err
	}
	if !served {
		return home.NotInstalled()
	}
	return fmt.Errorf("the Lodestone of this cluster is too old to replicate volumes: kubectl lodestone install --context %s upgrades it",
		home.Context)
}

// createAll makes all, and follows all to their first version if that is waited for.
func (r *runner) createAll(ctx context.Context, all []wanted) error {
	options := metav1.CreateOptions{}
	if r.DryRun {
		options.DryRun = []string{metav1.DryRunAll}
	}
	for i, w := range all {
		made, err := r.home.Moves.Replicas(r.namespace).Create(ctx, w.object, options)
		switch {
		case apierrors.IsAlreadyExists(err):
			err = cli.Refuse("there is a VolumeReplica %q in namespace %q, of another claim or standby: give the new one another name with --name",
				w.object.Name, r.namespace)
		case err != nil:
			err = r.home.Explain("create a VolumeReplica for "+w.facts.claim.Name, err)
		}
		if err != nil {
			return withNotMade(err, all[i+1:])
		}
		r.made = append(r.made, *made)
		if r.Output.Format != "" {
			continue
		}
		text := fmt.Sprintf("volumereplica/%s created", made.Name)
		if r.DryRun {
			text = plan(w)
		}
		if _, err := fmt.Fprintln(r.streams.Out, text); err != nil {
			return err
		}
	}
	if !r.Wait {
		return nil
	}
	var failed []error
	for i := range r.made {
		err := r.await(ctx, &r.made[i])
		if err == nil && r.Output.Format == "" {
			_, err = fmt.Fprintln(r.streams.Out, sealedText(&r.made[i], time.Now()))
		}
		failed = append(failed, err)
		if ctx.Err() != nil {
			break
		}
	}
	return errors.Join(failed...)
}

// withNotMade adds to an error which claims have no VolumeReplica because of it.
func withNotMade(err error, left []wanted) error {
	if len(left) == 0 {
		return err
	}
	var names []string
	for _, w := range left {
		names = append(names, w.facts.claim.Name)
	}
	return fmt.Errorf("%w; not begun: %s (run the same command again for them)", err, strings.Join(names, ", "))
}

// plan says what would be made for a claim, and how much the first copy sends.
func plan(w wanted) string {
	spec, claim := w.object.Spec, w.facts.claim
	from, class := "", "the class that a new claim would get"
	if w.facts.volume != nil {
		if cluster := cli.ClusterOf(w.facts.volume); cluster != "" {
			from = " from " + cluster
		}
	}
	if w.real != nil {
		class = "class " + w.real.Name
	} else if name := spec.Standbys[0].ClassName; name != "" {
		class = "class " + name
	}
	limit := ""
	if spec.BandwidthLimit != nil {
		limit = fmt.Sprintf(", and sends at most %s bytes a second", spec.BandwidthLimit)
	}
	lines := []string{fmt.Sprintf("would make VolumeReplica %s: it copies claim %s%s to %s in %s, so that the newest of %d versions is at "+
		"most %s old%s", w.object.Name, claim.Name, from, class, w.facts.to, spec.Versions.Keep, replica.Short(spec.RPO.Duration), limit)}
	size, what := claim.Status.Capacity[corev1.ResourceStorage], "as large as the volume is; how much of it is used is not known at home"
	if w.facts.volume == nil && size.IsZero() {
		size, what = claim.Spec.Resources.Requests[corev1.ResourceStorage], "what the claim asks for, which has no volume yet"
	}
	text := fmt.Sprintf("the first copy sends up to %s (%s) and takes that room in %s, and each later version what has changed", &size, what,
		w.facts.to)
	if w.real != nil && w.real.Free != nil {
		text += fmt.Sprintf("; class %s has %s free there", w.real.Name, cli.Size(w.real.Free.Value()))
		if w.real.Free.Cmp(size) < 0 {
			text += ", which is less than that"
		}
	}
	return strings.Join(append(lines, text), "\n")
}

// grace is how long a reason to refuse may pass by itself: a namespace that is being made there, or a class that was just created.
const grace = 30 * time.Second

// await waits until a VolumeReplica has its first version, and says how far it is. It leaves in made how that was last read. What is
// refused is refused at once where only somebody can change it.
func (r *runner) await(ctx context.Context, made *v1alpha1.VolumeReplica) error {
	refusedSince := time.Time{}
	look := func(ctx context.Context) (string, bool, error) {
		seen, err := r.home.Moves.Replicas(made.Namespace).Get(ctx, made.Name, metav1.GetOptions{})
		switch {
		case err == nil && seen.UID == made.UID:
			*made = *seen
		case err == nil || apierrors.IsNotFound(err):
			return "", false, fmt.Errorf("VolumeReplica %s/%s was deleted: nothing of it is kept", made.Namespace, made.Name)
		case cli.IsTransient(err) && ctx.Err() == nil:
			return "it cannot be seen for now: " + err.Error(), false, nil
		default:
			return "", false, r.home.Explain("get VolumeReplica "+made.Namespace+"/"+made.Name, err)
		}
		now := time.Now()
		c := replica.Of(made, now)
		if c.Sealed != nil {
			return "", true, nil
		}
		if !c.Refused() {
			refusedSince = time.Time{}
			return progress(c), false, nil
		}
		if refusedSince.IsZero() {
			refusedSince = now
		}
		if c.ForGood() || c.MayPass() && now.Sub(refusedSince) > grace {
			return "", false, cli.Refuse("%s is not replicated: %s; it is tried again by itself, and kubectl lodestone replicate delete %s -n %s "+
				"gives it up", c.Claim, c.Message, made.Name, made.Namespace)
		}
		return progress(c), false, nil
	}
	err := cli.Reporter{Out: r.streams.ErrOut}.Await(ctx, fmt.Sprintf("the first copy of claim %s", made.Spec.Claims[0]), look)
	if ctx.Err() != nil {
		return fmt.Errorf("no longer waiting, and the first copy of claim %s goes on: kubectl lodestone replicate status %s -n %s shows it",
			made.Spec.Claims[0], made.Name, made.Namespace)
	}
	return err
}

// progress says how far the first copy is.
func progress(c replica.Copy) string {
	switch {
	case c.Point != "" && c.Message != "" && c.State != replica.Unknown && c.State != "Seeding":
		return c.Point + ": " + c.Message
	case c.Point != "":
		return c.Point
	case c.State == replica.Unknown:
		return "waiting for the provisioner to take it up"
	}
	return c.Message
}

// sealedText is what is said once the first version is sealed.
func sealedText(made *v1alpha1.VolumeReplica, now time.Time) string {
	c := replica.Of(made, now)
	return fmt.Sprintf("%s; %s were sent", c.Has("cluster "+c.Standby, now), cli.Size(c.Sent))
}

// write prints the VolumeReplicas that were made: of several claims, or of a workload, as a list.
func (r *runner) write() error {
	switch {
	case r.many || len(r.made) > 1:
		return cli.WriteAll(r.Output, r.streams.Out, kind, r.made)
	case len(r.made) == 0: // none could be made, which the error says
		return nil
	}
	return r.Output.WriteOne(r.streams.Out, kind, &r.made[0])
}
