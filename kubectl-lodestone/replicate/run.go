package replicate

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/dynamic"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/replica"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/sentence"
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
	parts  []part
}

// part is one of its claims.
type part struct {
	facts facts
	// real is the class of the copy, nil if that is not known.
	real *v1alpha1.OfferedClass
}

// names are the claims.
func (w wanted) names() string { return strings.Join(w.object.Spec.Claims, ", ") }

// run makes a VolumeReplica for each group of claims, after a check of all of them, so that a mistake changes nothing.
func (r *runner) run(ctx context.Context, groups [][]string) error {
	shared, err := r.read(ctx)
	if err != nil {
		return err
	}
	var all []wanted
	for _, group := range groups {
		w, err := r.want(ctx, shared, group)
		if err != nil {
			return err
		}
		if w != nil {
			all = append(all, *w)
		}
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

// want returns the VolumeReplica of a group of claims; nil: there is one.
func (r *runner) want(ctx context.Context, shared facts, group []string) (*wanted, error) {
	object, err := r.object(r.namespace, group)
	if err != nil {
		return nil, err
	}
	w := &wanted{object: object}
	for _, name := range group {
		f, err := r.readClaim(ctx, shared, name)
		if err != nil {
			return nil, err
		}
		if has := f.has(); has != nil && r.many && sameClaims(has.Spec.Claims, group) {
			fmt.Fprintf(r.streams.ErrOut, "%s: nothing to do, VolumeReplica %s keeps a copy there\n", w.names(), has.Name)
			return nil, nil
		}
		why, real := f.forbids(r.Class)
		if why != "" {
			return nil, cli.Refuse("%s", why)
		}
		w.parts = append(w.parts, part{f, real})
		switch slots, _ := f.inSlots(real, object.Spec); {
		case slots && r.given && r.Keep > mostSlots:
			return nil, cli.Refuse("claim %s/%s is not replicated: class %s has no snapshots in %s, and without those %d versions are kept at "+
				"most: give --keep %d, leave it out, or name another class with --class", r.namespace, name, real.Name, r.To, mostSlots, mostSlots)
		case slots:
			object.Spec.Versions.Keep = min(object.Spec.Versions.Keep, mostSlots)
		}
	}
	if why := apart(w.parts); why != "" {
		return nil, cli.Refuse("%s", why)
	}
	return w, nil
}

// sameClaims says whether a VolumeReplica is of the claims that are named, in whatever order, or has the one that is.
func sameClaims(has, group []string) bool {
	return len(group) == 1 && slices.Contains(has, group[0]) ||
		slices.Equal(slices.Sorted(slices.Values(has)), slices.Sorted(slices.Values(group)))
}

// apart says why no snapshot can be taken of several claims at one moment, as far as that is known; empty for nothing. It is pure.
func apart(parts []part) string {
	first, at := "", ""
	for _, p := range parts {
		if p.facts.volume == nil {
			continue
		}
		switch cluster := cli.ClusterOf(p.facts.volume); {
		case cluster == "":
		case at == "":
			first, at = p.facts.claim.Name, cluster
		case cluster != at:
			return fmt.Sprintf("the data of claim %s is in cluster %q and that of claim %s in cluster %q, and no snapshot of both is of one "+
				"moment: move them together (kubectl lodestone move), or leave --group out", first, at, p.facts.claim.Name, cluster)
		}
	}
	return ""
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
	if r.DryRun {
		moves, err := r.home.Moves.In(r.namespace).List(ctx, metav1.ListOptions{})
		if ok, err := r.readable("list VolumeMoves -n "+r.namespace, err); err != nil {
			return f, err
		} else if ok {
			f.moves = moves.Items
		}
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
	binding, err := r.bindingNeeded(ctx)
	if err != nil {
		return err
	}
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
			err = r.home.Explain("create a VolumeReplica for "+w.names(), err)
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
	if binding == "" && r.DryRun && r.Freeze != "" {
		binding = "the provisioner may run the hooks in this namespace"
	}
	if binding != "" {
		fmt.Fprintln(r.streams.ErrOut, binding)
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
		names = append(names, w.names())
	}
	return fmt.Errorf("%w; not begun: %s (run the same command again for them)", err, strings.Join(names, ", "))
}

// plan says what would be made for claims, and how much the first copy sends.
func plan(w wanted) string {
	spec := w.object.Spec
	limit, moment := "", ""
	if spec.BandwidthLimit != nil {
		limit = fmt.Sprintf(", and sends at most %s bytes a second", spec.BandwidthLimit)
	}
	if len(w.parts) > 1 {
		moment = ", all of one moment,"
	}
	var names, from, classes []string
	for _, p := range w.parts {
		names = append(names, p.facts.claim.Name)
		if p.facts.volume != nil {
			if cluster := cli.ClusterOf(p.facts.volume); cluster != "" {
				from = append(from, " from "+cluster)
			}
		}
		classes = append(classes, p.className(spec))
	}
	from, classes = slices.Compact(from), slices.Compact(classes)
	lines := []string{fmt.Sprintf("would make VolumeReplica %s: it copies %s%s%s to %s in %s, so that the newest of %d versions is at "+
		"most %s old%s", w.object.Name, ofClaims(names), strings.Join(from, ""), moment, strings.Join(classes, " and "), w.parts[0].facts.to,
		spec.Versions.Keep, replica.Short(spec.RPO.Duration), limit)}
	for _, p := range w.parts {
		of := ""
		if len(w.parts) > 1 {
			of = " of claim " + p.facts.claim.Name
		}
		lines = append(lines, p.sends(of))
		switch slots, known := p.facts.inSlots(p.real, spec); {
		case slots:
			lines = append(lines, fmt.Sprintf("versions%s are in two claims there that are written in turn, without snapshots: both take that "+
				"room, so twice as much in all, and no test can be made of a version (failover --test)", of))
		case !known:
			lines = append(lines, fmt.Sprintf("if that class has no snapshots there, versions%s are in two claims that are written in turn: both "+
				"take that room, so twice as much in all, and %d versions are kept at most", of, mostSlots))
		}
	}
	size, source := int64(0), ""
	for _, p := range w.parts {
		quantity, _ := p.size()
		size += quantity.Value()
	}
	if v := w.parts[0].facts.volume; v != nil {
		source = cli.ClusterOf(v)
	}
	lines = append(lines, takes(size, spec.BandwidthLimit, w.parts[0].facts.moves, source, w.parts[0].facts.to))
	return strings.Join(lines, "\n") + planFreeze(spec.Hooks)
}

func (p part) className(spec v1alpha1.VolumeReplicaSpec) string {
	if p.real != nil {
		return "class " + p.real.Name
	}
	if name := spec.Standbys[0].ClassName; name != "" {
		return "class " + name
	}
	return "the class that a new claim would get"
}

// size is how much the first copy sends at most, and what that is.
func (p part) size() (size resource.Quantity, what string) {
	claim := p.facts.claim
	size, what = claim.Status.Capacity[corev1.ResourceStorage], "as large as the volume is; how much of it is used is not known at home"
	if p.facts.volume == nil && size.IsZero() {
		size, what = claim.Spec.Resources.Requests[corev1.ResourceStorage], "what the claim asks for, which has no volume yet"
	}
	return size, what
}

// sends says how much the first copy sends.
func (p part) sends(of string) string {
	size, what := p.size()
	text := fmt.Sprintf("the first copy%s sends up to %s (%s) and takes that room in %s, and each later version what has changed", of, &size,
		what, p.facts.to)
	if p.real != nil && p.real.Free != nil {
		text += fmt.Sprintf("; class %s has %s free there", p.real.Name, sentence.Size(p.real.Free.Value()))
		if p.real.Free.Cmp(size) < 0 {
			text += ", which is less than that"
		}
	}
	return text
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
				"gives it up", c.Names(), c.Message, made.Name, made.Namespace)
		}
		return progress(c), false, nil
	}
	err := cli.Reporter{Out: r.streams.ErrOut}.Await(ctx, fmt.Sprintf("the first copy of %s", ofClaims(made.Spec.Claims)), look)
	if ctx.Err() != nil {
		return fmt.Errorf("stopped waiting; the first copy of %s goes on: kubectl lodestone replicate status %s -n %s shows it",
			ofClaims(made.Spec.Claims), made.Name, made.Namespace)
	}
	return err
}

// ofClaims names claims in a sentence.
func ofClaims(names []string) string {
	if len(names) == 1 {
		return "claim " + names[0]
	}
	return "claims " + strings.Join(names, ", ")
}

// progress says how far the first copy is.
func progress(c replica.Copy) string {
	switch {
	case c.Point != "" && c.Message != "" && c.State != replica.Unknown && c.State != "Seeding":
		return c.Point + ": " + c.Message
	case c.Point != "":
		return c.Point
	case c.State == replica.Unknown:
		return "waiting for the provisioner to begin it"
	}
	return c.Message
}

// sealedText is what is said once the first version is sealed.
func sealedText(made *v1alpha1.VolumeReplica, now time.Time) string {
	c := replica.Of(made, now)
	return fmt.Sprintf("%s; %s were sent", c.Has("cluster "+c.Standby, now), sentence.Size(c.Sent))
}

// write prints the VolumeReplicas that were made, those of several claims or of a workload as a list; if there are none, the error says
// why.
func (r *runner) write() error { return named.Write(r.streams.Out, r.Output, r.made, r.many) }
