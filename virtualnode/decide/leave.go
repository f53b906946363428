package decide

import (
	"fmt"
)

// leaving is the step for a home pod that is being deleted.
func leaving(o Observation) Step {
	if !Protected(o.Pod) {
		// It never got the finalizer, or the user took it off to release the pod;
		// what is left in the remote cluster goes when the home pod has.
		return Step{Verb: Release}
	}
	return end(o, o.Pod.DeletionGracePeriodSeconds, true)
}

// ended is the step for a home pod that has ended but is not deleted. What runs
// for it must end too, since its controller counts it as gone.
func ended(o Observation) Step {
	if o.Remote != nil && Ended(o.Remote) && o.Shadow != nil && o.Shadow.DeletionTimestamp == nil && Protected(o.Pod) {
		// Kept while its log may be wanted.
		return Step{Verb: Idle}
	}
	if !Protected(o.Pod) {
		if o.Shadow != nil && o.Shadow.DeletionTimestamp == nil {
			return Step{Verb: End}
		}
		return Step{Verb: Idle}
	}
	return end(o, nil, false)
}

// end is the step for a protected home pod whose copy has to end.
func end(o Observation, grace *int64, reports bool) Step {
	had, started := CopyOf(o.Pod)
	shadow := o.Shadow
	switch {
	case !started && (shadow == nil || !shadow.Spec.Start):
		return Step{Verb: Release}
	case started && !had.within(o):
		return elsewhere(o, had)
	case shadow == nil:
		return Step{Verb: Finish}
	case started && shadow.UID != had.ShadowUID && !shadow.Spec.Start:
		// A late request made it; it goes when the home pod has.
		return Step{Verb: Finish}
	case shadow.DeletionTimestamp == nil:
		return Step{Verb: End, Grace: grace}
	case grace != nil && (shadow.Spec.GracePeriodSeconds == nil || *grace < *shadow.Spec.GracePeriodSeconds):
		return Step{Verb: End, Grace: grace}
	case reports && !Ended(o.Pod) && o.Remote != nil:
		return report(o)
	}
	return Step{Verb: Idle}
}

// elsewhere is the step for a home pod whose copy is in another cluster than the
// one that is reached, in one that never answered yet, or in another namespace, as
// when home was given another ID.
func elsewhere(o Observation, had Copy) Step {
	switch {
	case o.ClusterUID == "":
		return Step{Verb: Idle}
	case had.ClusterUID == o.ClusterUID:
		return Step{Verb: Idle, Tell: warn("OtherNamespace", fmt.Sprintf("the pod may run in namespace %q of cluster %s, but belongs in %q now: give --cluster-id back its value, or give the pod up with `kubectl lodestone release pod` once it is certain that it does not run", had.Namespace, o.Cluster, o.Place.Name))}
	}
	return Step{Verb: Idle, Tell: warn("OtherCluster", fmt.Sprintf("the pod may run in another cluster than the one that the kubeconfig of %s reaches now: give back the kubeconfig, or give the pod up with `kubectl lodestone release pod` once it is certain that it does not run", o.Cluster))}
}
