package server

import "context"

// answer makes buffers.answer from buffers.body. An error is one sentence about
// what is wrong with the request.
type answer func(ctx context.Context, memory *hold, buffers *buffers) error

// sized is what all requests have in common.
type sized interface {
	Candidates() []string
	Items() int
}

// decoded returns an answer to what scan makes of a body, or else decode, which
// takes any JSON but much more memory.
func decoded[R sized](scan func([]byte, []string) (R, bool), decode func([]byte) (R, error), decide func(context.Context, []byte, R) []byte) answer {
	return func(ctx context.Context, memory *hold, buffers *buffers) error {
		request, ok := scan(buffers.body, buffers.names)
		if !ok {
			// What was read before something odd came.
			clear(buffers.names[:cap(buffers.names)])
			if !memory.more(oddWeight * int64(len(buffers.body))) {
				return errTooOdd
			}
			var err error
			if request, err = decode(buffers.body); err != nil {
				return err
			}
		}
		buffers.names = request.Candidates()
		if !memory.more(int64(len(buffers.body)) + itemWeight*int64(request.Items())) {
			return errTooMany
		}
		buffers.answer = decide(ctx, buffers.answer, request)
		return nil
	}
}
