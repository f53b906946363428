package doctor

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
)

// names finds what users wrote into virtual classes and on namespaces that stands for nothing: nobody refuses that, since the cluster
// or the class may come later.
func names(f Facts) (found []Finding) {
	clusters, classes := map[string]bool{keys.Home: true}, map[string]bool{}
	for _, class := range virtualclass.Offer(f.Classes) {
		classes[class.Name] = true
	}
	here := maps.Clone(classes)
	for i := range f.Remotes {
		clusters[f.Remotes[i].Name] = true
		for _, class := range f.Remotes[i].Status.StorageClasses {
			classes[class.Name] = true
		}
	}
	warn := func(do, format string, args ...any) {
		found = append(found, Finding{Level: Warning, Says: fmt.Sprintf(format, args...), Do: do})
	}
	const anew = "correct the name and make the class anew, or see why there is none"
	for _, class := range f.Classes {
		if _, err := virtualclass.Parse(class); err != nil || !virtualclass.Is(class) {
			continue // that is said among the classes
		}
		for _, key := range slices.Sorted(maps.Keys(class.Parameters)) {
			value := class.Parameters[key]
			cluster, single := strings.CutPrefix(key, keys.RemoteClass+".")
			switch {
			case key == keys.Clusters:
				for _, name := range unknown(value, clusters) {
					warn(anew, "storage class %s lists cluster %q in parameter %s, and there is no RemoteCluster of that name", class.Name, name, key)
				}
			case single && !clusters[cluster]:
				warn(anew, "storage class %s has the parameter %s, and there is no RemoteCluster %q", class.Name, key, cluster)
			case key == keys.LocalClass && value != "" && !here[value]:
				warn(anew, "storage class %s names %q in parameter %s, and home has no such real class", class.Name, value, key)
			case key == keys.Classes:
				for _, name := range unknown(value, classes) {
					warn(anew, "storage class %s lists %q in parameter %s, and no cluster has such a real class", class.Name, name, key)
				}
			}
		}
	}
	for i := range f.Namespaces {
		namespace := &f.Namespaces[i]
		if value, ok := namespace.Labels[keys.Offload]; ok && value != keys.OffloadEnabled {
			warn(fmt.Sprintf("kubectl label namespace %s %s=%s --overwrite opens it, and %s- takes the label off", namespace.Name, keys.Offload,
				keys.OffloadEnabled, keys.Offload),
				"namespace %s has label %s=%s, which does not open it to remote clusters", namespace.Name, keys.Offload, value)
		}
		if value, ok := namespace.Labels[keys.Scheduler]; ok && value != keys.SchedulerEnabled {
			warn(fmt.Sprintf("kubectl label namespace %s %s=%s --overwrite gives its pods to it, and %s- takes the label off", namespace.Name,
				keys.Scheduler, keys.SchedulerEnabled, keys.Scheduler),
				"namespace %s has label %s=%s, which gives its pods to no second scheduler", namespace.Name, keys.Scheduler, value)
		}
		if value, ok := namespace.Labels[keys.HomeAPI]; ok && value != keys.HomeAPIEnabled {
			warn(fmt.Sprintf("kubectl label namespace %s %s=%s --overwrite gives it to them, and %s- takes the label off", namespace.Name,
				keys.HomeAPI, keys.HomeAPIEnabled, keys.HomeAPI),
				"namespace %s has label %s=%s, which gives its pods in remote clusters no API of home", namespace.Name, keys.HomeAPI, value)
		}
		for _, name := range unknown(namespace.Annotations[keys.OffloadClusters], clusters) {
			warn("correct the annotation, or see why there is none", "namespace %s is open to cluster %q by annotation %s, and there is no "+
				"RemoteCluster of that name", namespace.Name, name, keys.OffloadClusters)
		}
	}
	if len(found) == 0 {
		return ok("what classes and namespaces name is there")
	}
	return found
}

// unknown returns the names of a list, separated by commas, that are not known.
func unknown(list string, known map[string]bool) (names []string) {
	for name := range strings.SplitSeq(list, ",") {
		if name = strings.TrimSpace(name); name != "" && !known[name] {
			names = append(names, name)
		}
	}
	return names
}
