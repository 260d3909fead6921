/* Included before everything in thread-sanitizer builds. g++ 12's sanitizer does not know pthread_cond_clockwait, which libstdc++ uses for timed waits, and then
 * reports races on what the mutex protects; without it libstdc++ uses pthread_cond_timedwait, which the sanitizer knows. */
#ifdef __cplusplus
#include <bits/c++config.h>
#undef _GLIBCXX_USE_PTHREAD_COND_CLOCKWAIT
#endif
