"""POSIX threads and semaphores, for drivers that must run two real threads without Python."""

from posix.time cimport timespec

cdef extern from "<pthread.h>" nogil:
    ctypedef struct pthread_t:
        pass
    ctypedef struct pthread_attr_t:
        pass
    int pthread_create(pthread_t* thread, const pthread_attr_t* attr, void* (*run)(void*) noexcept,
                       void* argument)
    int pthread_join(pthread_t thread, void** result)

cdef extern from "<semaphore.h>" nogil:
    ctypedef struct sem_t:
        pass
    int sem_init(sem_t* sem, int shared, unsigned int value)
    int sem_destroy(sem_t* sem)
    int sem_post(sem_t* sem)
    int sem_timedwait(sem_t* sem, const timespec* until)

cdef extern from "<sched.h>" nogil:
    int sched_yield()
