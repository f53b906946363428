package moves

import (
	"context"
	"errors"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// pageSize is how many objects are read at once, maxPages how many times: a remote cluster
	// may send pages for ever.
	pageSize = 500
	maxPages = 200
)

// errEndless is the error of a list that has too many pages.
var errEndless = errors.New("the list has more than 100,000 objects, which a move does not look through: delete what is not needed there")

// eachPage reads a list page by page. All pages are of the moment of the first one; if the API
// server cannot tell any more what was there then, the whole read fails.
func eachPage[L metav1.ListInterface](ctx context.Context, options metav1.ListOptions,
	list func(context.Context, metav1.ListOptions) (L, error), each func(L)) error {
	options.Limit = pageSize
	for range maxPages {
		page, err := list(ctx, options)
		if err != nil {
			return err
		}
		each(page)
		if options.Continue = page.GetContinue(); options.Continue == "" {
			return nil
		}
	}
	return errEndless
}
